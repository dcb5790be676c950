package sriov

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
)

// call runs the sriov plugin in the same way as a container runtime.
func (b *bench) call(command, container, namespace, config string) error {
	b.Helper()
	path, err := (executor.PluginExec{}).FindInPath("sriov", cniDirs())
	b.must(err)
	cmd := exec.Command(path)
	cmd.Env = append(cmd.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+
		strings.NewReplacer("/", "-", "_", "-").Replace(container), "CNI_NETNS="+namespace, "CNI_IFNAME=net1")
	cmd.Stdin = strings.NewReader(config)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, output.Bytes())
	}
	return nil
}

func sriovConfig(address, more string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "test", "type": "sriov", "deviceID": %q%s}`, address, more)
}

// The driver works around the following properties of the sriov plugin. Both the test double and the real plugin have
// these properties.
func TestWeaknessesOfTheSRIOVPlugin(t *testing.T) {
	const vlan = `, "vlan": 77`
	vlanIs := func(b *bench, when string, want int) {
		b.Helper()
		if have := b.info(pf0, 0).Vlan; have != want {
			b.Errorf("%s: the VLAN is %d, want %d", when, have, want)
		}
	}
	refuses := func(b *bench, what string, err error, text string) {
		b.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			b.Errorf("%s: error = %v, want one that contains %q", what, err, text)
		}
	}
	for name, test := range map[string]func(b *bench, pod, config string){
		"two pods": func(b *bench, pod, config string) {
			b.must(b.call("ADD", b.Name(), pod, config))
			refuses(b, "ADD for another pod", b.call("ADD", "other", cnitest.NewPod(b.T, "other"), config),
				"already allocated")
			b.must(b.call("DEL", b.Name(), pod, config))
			vlanIs(b, "DEL", 0)
			b.LinkOf(b.VF(pf0, 0)) // checks that it is on the host again
			b.must(b.call("DEL", b.Name(), pod, config))
		},
		"namespace is gone": func(b *bench, pod, config string) {
			b.must(b.call("ADD", b.Name(), pod, config))
			cnitest.RemovePod(pod)
			b.must(b.call("DEL", b.Name(), pod, config))
			vlanIs(b, "DEL at a stale path", 0)
		},
		"no namespace": func(b *bench, pod, config string) {
			b.must(b.call("ADD", b.Name(), pod, config))
			b.must(b.call("DEL", b.Name(), "", config))
			vlanIs(b, "DEL without a path", 77)
			b.must(b.call("DEL", b.Name(), pod, config))
			vlanIs(b, "DEL without a record", 77)
		},
		"refused setting": func(b *bench, pod, _ string) {
			refused := sriovConfig(b.VF(pf0, 0), vlan+`, "link_state": "enable"`) // igb does not support this setting
			refuses(b, "ADD with a link state", b.call("ADD", b.Name(), pod, refused), "not supported")
			vlanIs(b, "ADD that failed", 77)
		},
		"no link": func(b *bench, pod, config string) {
			b.bind(b.VF(pf0, 0), "vfio-pci")
			b.must(b.call("ADD", b.Name(), pod, config))
			vlanIs(b, "ADD", 77)
			if b.call("DEL", b.Name(), pod, config) == nil {
				b.Error("DEL for a function without a link succeeded while the namespace existed")
			}
			vlanIs(b, "DEL that failed", 0)              // DEL resets the settings first
			b.must(b.call("DEL", b.Name(), pod, config)) // the plugin no longer has a record, so DEL succeeds
			cnitest.RemovePod(pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			short, _, _ := strings.Cut(name, " ")
			test(b, cnitest.NewPod(t, short), sriovConfig(b.VF(pf0, 0), vlan))
		})
	}
}
