package kerneltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// behaviour is a plugin's response to a command.
type behaviour string

const (
	works           behaviour = ""
	failsBefore     behaviour = "error"             // returns a CNI error without taking effect
	failsAfter      behaviour = "effect then error" // the effect, and then a CNI error
	crashes         behaviour = "crash"             // takes effect, then exits without CNI output
	pretends        behaviour = "no effect"         // returns a result without taking effect
	printsGarbage   behaviour = "garbage"           // takes effect, but prints no JSON
	printsTwo       behaviour = "two documents"     // takes effect, then prints a result and another document
	printsTooMuch   behaviour = "huge output"       // takes effect, then prints 3 MiB
	hangs           behaviour = "hang"              // takes effect, then hangs; a grandchild keeps stdout open
	waits           behaviour = "wait"              // waits for a file "go", then takes effect
	failsWithExists behaviour = "foreign link"      // another process creates the link; "file exists"
	isNotAvailable  behaviour = "not available"     // STATUS reports that ADD cannot be served
	knowsNothing    behaviour = "unknown command"   // like plugins that do not fully implement their CNI version
)

// script maps each command to a behavior.
type script map[string]behaviour

// plugin is a CNI plugin implemented by this test binary. ADD creates a bridge named CNI_IFNAME in the pod, and a file
// on the host that represents the plugin's own state. DEL removes both; it is not an error if they are missing.
type plugin struct {
	path string
}

// installPlugin installs the plugin in dir under the given name.
func installPlugin(t *testing.T, dir, name string) *plugin {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{path: filepath.Join(dir, name)}
	if err := os.Symlink(self, p.path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.path+".state", 0o700); err != nil {
		t.Fatal(err)
	}
	p.follow(t, script{})
	return p
}

// follow makes the plugin follow a script.
func (p *plugin) follow(t *testing.T, s script) {
	t.Helper()
	encoded, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(p.path+".script", encoded, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// grandchildVariable is the environment variable that makes this binary run as a process that ignores SIGTERM. Its
// value is the path to the plugin that started the process.
const grandchildVariable = "KERNELTEST_GRANDCHILD"

// double is the main function of the scripted plugin.
func double() int {
	if os.Getenv(grandchildVariable) != "" {
		signal.Ignore(syscall.SIGTERM)
		pause()
	}
	p := &plugin{path: os.Args[0]}
	command := os.Getenv("CNI_COMMAND")
	if command == "VERSION" {
		fmt.Println(`{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}`)
		return 0
	}
	var s script
	data, err := os.ReadFile(p.path + ".script")
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return refuse(err)
	}
	return p.do(command, s[command])
}

func (p *plugin) do(command string, b behaviour) int {
	if err := p.note(command); err != nil {
		return refuse(err)
	}
	if b == waits {
		p.wait()
	}
	if !slices.Contains([]behaviour{failsBefore, pretends, failsWithExists}, b) {
		if err := p.effect(command); err != nil {
			return refuse(err)
		}
	}
	switch b {
	case isNotAvailable:
		return refuseWith(50, "the daemon is down")
	case knowsNothing:
		return refuseWith(4, "unknown CNI_COMMAND: "+command)
	case failsBefore, failsAfter:
		return refuse(fmt.Errorf("scripted to fail"))
	case crashes:
		fmt.Fprintln(os.Stderr, "panic: scripted to crash")
		return 2
	case printsGarbage:
		fmt.Println("hello")
	case printsTwo:
		fmt.Println(answer(), answer())
	case printsTooMuch:
		fmt.Println(strings.Repeat(" ", 3<<20) + answer())
	case hangs:
		return hang()
	case failsWithExists:
		if err := inPod(os.Getenv("CNI_NETNS"), addLink); err != nil {
			return refuse(err)
		}
		return refuse(syscall.EEXIST)
	case works, pretends, waits:
		if command == "ADD" {
			fmt.Println(answer())
		}
	}
	return 0
}

func refuse(err error) int { return refuseWith(111, err.Error()) }

func refuseWith(code int, message string) int {
	encoded, _ := json.Marshal(map[string]any{"cniVersion": "1.1.0", "code": code, "msg": message})
	fmt.Println(string(encoded))
	return 1
}

func answer() string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","interfaces":[{"name":%q,"sandbox":%q}]}`, os.Getenv("CNI_IFNAME"),
		os.Getenv("CNI_NETNS"))
}

// hang starts a process that keeps stdout open and ignores SIGTERM, and then blocks forever.
func hang() int {
	self, err := os.Executable()
	if err != nil {
		return refuse(err)
	}
	grandchild := exec.Command(self)
	grandchild.Env, grandchild.Stdout = []string{grandchildVariable + "=" + os.Args[0]}, os.Stdout
	if err := grandchild.Start(); err != nil {
		return refuse(err)
	}
	pause()
	return 0
}

// pause blocks forever in the kernel: if all goroutines were blocked in Go, the runtime would terminate the process.
func pause() {
	for {
		_ = unix.Pause()
	}
}

// note records the call in a file.
func (p *plugin) note(command string) error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	return os.WriteFile(p.path+"."+command, append([]byte(strings.Join(cniEnvironment(), "\n")+"\n"), input...), 0o600)
}

func cniEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return !strings.HasPrefix(entry, "CNI_") })
}

// wait reports that the plugin has started, and waits for the file "go".
func (p *plugin) wait() {
	_ = os.WriteFile(p.path+".started", nil, 0o600)
	gate, err := os.Open(p.path + ".go") // opening a named pipe blocks until the other end is opened
	if err == nil {
		_ = gate.Close()
	}
}

// effect creates or removes the plugin's link and file.
func (p *plugin) effect(command string) error {
	lease := filepath.Join(p.path+".state", os.Getenv("CNI_CONTAINERID")+"-"+os.Getenv("CNI_IFNAME"))
	switch command {
	case "ADD":
		if err := inPod(os.Getenv("CNI_NETNS"), addLink); err != nil {
			return err
		}
		return os.WriteFile(lease, nil, 0o600)
	case "DEL":
		if err := os.Remove(lease); err != nil && !os.IsNotExist(err) {
			return err
		}
		if _, err := os.Stat(os.Getenv("CNI_NETNS")); err != nil {
			return nil //nolint:nilerr // without a namespace there is no link
		}
		return inPod(os.Getenv("CNI_NETNS"), func(handle *netlink.Handle) error {
			link, err := handle.LinkByName(os.Getenv("CNI_IFNAME"))
			if err != nil {
				return nil //nolint:nilerr // the namespace no longer exists
			}
			return handle.LinkDel(link)
		})
	}
	if command == "GC" {
		return p.collect()
	}
	return nil
}

// collect removes everything that does not belong to an attachment in the caller's list.
func (p *plugin) collect() error {
	noted, err := os.ReadFile(p.path + ".GC")
	if err != nil {
		return err
	}
	var config struct {
		Valid []struct{ ContainerID, IfName string } `json:"cni.dev/valid-attachments"`
	}
	_, document, _ := strings.Cut(string(noted), "\n{")
	if err := json.Unmarshal([]byte("{"+document), &config); err != nil {
		return err
	}
	leases, err := os.ReadDir(p.path + ".state")
	for _, lease := range leases {
		valid := false
		for _, attachment := range config.Valid {
			valid = valid || lease.Name() == attachment.ContainerID+"-"+attachment.IfName
		}
		if !valid {
			err = errors.Join(err, os.Remove(filepath.Join(p.path+".state", lease.Name())))
		}
	}
	return err
}

func addLink(handle *netlink.Handle) error {
	return handle.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: os.Getenv("CNI_IFNAME")}})
}

// inPod calls a function with a netlink handle for a namespace.
func inPod(path string, do func(*netlink.Handle) error) error {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("cannot open %q: %w", path, err)
	}
	defer func() { _ = namespace.Close() }()
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer handle.Close()
	return do(handle)
}
