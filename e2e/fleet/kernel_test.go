package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// link is the state of a link in the kernel, as printed by ip.
type link struct {
	Index   int      `json:"ifindex"`
	Name    string   `json:"ifname"`
	Flags   []string `json:"flags"`
	MTU     int      `json:"mtu"`
	Master  string   `json:"master"`
	Alias   string   `json:"ifalias"`
	Address string   `json:"address"`
	Info    struct {
		Kind string `json:"info_kind"`
	} `json:"linkinfo"`
	Addresses []struct {
		Family string `json:"family"`
		Local  string `json:"local"`
		Length int    `json:"prefixlen"`
	} `json:"addr_info"`
}

// String returns all properties that an attachment must not change. They do not include the index, which is different
// in each boot.
func (l link) String() string {
	var addresses []string
	for _, a := range l.Addresses {
		if a.Family == "inet" {
			addresses = append(addresses, fmt.Sprintf("%s/%d", a.Local, a.Length))
		}
	}
	return fmt.Sprintf("%s %s %s mtu %d up %v master %q alias %q %v", l.Name, l.Info.Kind, l.Address, l.MTU,
		slices.Contains(l.Flags, "UP"), l.Master, l.Alias, addresses)
}

// space is a network namespace on a node: either the node's own namespace or a pod's namespace.
type space struct {
	pod   string
	host  bool
	links []link
}

func (s space) String() string {
	if s.host {
		return "the host"
	}
	return "pod " + s.pod
}

// spaces returns all network namespaces on a node that are kept alive by a process or a pin.
func spaces(ctx context.Context, n *lab.Node) ([]space, error) {
	holders, err := holders(n)
	if err != nil {
		return nil, err
	}
	var all []space
	for _, h := range holders {
		output, err := n.Exec(ctx, "nsenter", "--net="+h.path, "ip", "-j", "-d", "address", "show")
		if errors.Is(err, lab.ErrNotRunning) {
			return nil, err
		}
		if err != nil {
			continue // its last process has exited
		}
		s := space{pod: h.pod, host: h.host}
		if err := json.Unmarshal(output, &s.links); err != nil {
			return nil, fmt.Errorf("cannot decode the links of %s on %s: %w", s, n.NodeName(), err)
		}
		all = append(all, s)
	}
	return all, nil
}

// holder is a process or a pin that keeps a network namespace alive.
type holder struct {
	path, pod string
	host      bool
}

// holders returns one holder for each network namespace on a node, with paths on the node.
func holders(n *lab.Node) (map[uint64]holder, error) {
	found := map[uint64]holder{}
	namespaces, err := n.NodeGlob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	for _, path := range namespaces {
		var stat unix.Stat_t
		if unix.Stat(path, &stat) != nil {
			continue // the process has exited
		}
		process := filepath.Dir(filepath.Dir(path))
		h, known := found[stat.Ino]
		h.host = h.host || filepath.Base(process) == "1"
		if !known { // use the first process (process 1 for the host), since others may exit
			h.path = "/proc/" + filepath.Base(process) + "/ns/net"
		}
		if environment, err := os.ReadFile(filepath.Join(process, "environ")); err == nil {
			_, mark, marked := strings.Cut("\x00"+string(environment), "\x00"+markVariable+"=")
			if marked {
				h.pod, _, _ = strings.Cut(mark, "\x00")
			}
		}
		found[stat.Ino] = h
	}
	pins, err := n.NodeGlob("/run/netns/*")
	if err != nil {
		return nil, err
	}
	for _, path := range pins {
		var stat unix.Stat_t
		if unix.Stat(path, &stat) == nil && found[stat.Ino].path == "" {
			found[stat.Ino] = holder{path: filepath.Join("/run/netns", filepath.Base(path)),
				pod: "of pin " + filepath.Base(path)}
		}
	}
	return found, nil
}

// shape is the part of a node's state that must be unchanged once no pods remain.
type shape struct {
	// Links contains the links on the host, except the host ends of the pods' first interfaces.
	Links []string
	// Files contains the files that attachments create.
	Files []string
}

// lasting matches files that are unrelated to attachments: locks, host-local's last address, files for the cluster's
// own network, and the runtime's pins.
var lasting = regexp.MustCompile(`/lock$|/last_reserved_ip|/results/(lab|cni-loopback)-|/cni\.lock$|/netns/cni-`)

// inspect returns the state of a node.
func inspect(ctx context.Context, n *lab.Node) (shape, error) {
	var now shape
	all, err := spaces(ctx, n)
	if err != nil {
		return now, err
	}
	for _, s := range all {
		for _, l := range s.links {
			if s.host && (l.Master != "node0" || l.Name == "uplink") {
				now.Links = append(now.Links, l.String())
			}
		}
	}
	output, err := n.Exec(ctx, "sh", "-c",
		"find /var/lib/cni /run/cni /run/cdi /run/netns -type f 2>/dev/null || true")
	if err != nil {
		return now, err
	}
	for _, file := range strings.Fields(string(output)) {
		if !lasting.MatchString(file) {
			now.Files = append(now.Files, file)
		}
	}
	slices.Sort(now.Links)
	slices.Sort(now.Files)
	return now, nil
}

// asItWas waits until all nodes are back in the state that they had before the test.
func (f *fleet) asItWas() {
	f.Helper()
	for _, n := range f.nodes {
		f.eventually(n.NodeName()+" is as it was", func(ctx context.Context) error {
			now, err := inspect(ctx, n)
			if diff := cmp.Diff(f.before[n.NodeName()], now); err == nil && diff != "" {
				err = fmt.Errorf("(-before +now):\n%s", diff)
			}
			return err
		})
	}
}

// inPod returns the links, keyed by name, that the kernel reports for a pod on a node. It retries, because a scan
// misses a namespace if the process through which the namespace was found, such as a probe or kubectl exec, exits in
// the meantime.
func (f *fleet) inPod(n *lab.Node, pod string) map[string]link {
	f.Helper()
	links := map[string]link{}
	for try := 0; try < 5 && len(links) == 0; try++ {
		all, err := spaces(f.Context(), n)
		if err != nil {
			f.Fatal(err)
		}
		for _, s := range all {
			for _, l := range s.links {
				if s.pod == pod {
					links[l.Name] = l
				}
			}
		}
	}
	return links
}

// owned checks that each link on the wire is in exactly one namespace on its node, and that no device is allocated to
// two claims. It returns the namespaces that the node's links are in, keyed by the links' hardware addresses, which are
// the same in every boot. Namespaces are read sequentially, so a link that is being moved might be found twice or not
// at all; in this case, owned retries.
func (f *fleet) owned(n *lab.Node) (places map[string]string) {
	f.Helper()
	f.eventually("each link of "+n.NodeName()+" is in one place", func(ctx context.Context) error {
		all, err := spaces(ctx, n)
		if err != nil {
			return err
		}
		var problems []string
		if places, problems = placesOf(all); len(problems) > 0 {
			return fmt.Errorf("%q", problems)
		}
		return nil
	})
	claims, err := f.client.ResourceV1().ResourceClaims("").List(f.Context(), metav1.ListOptions{})
	if err != nil {
		f.Fatal(err)
	}
	for _, problem := range allocatedTwice(claims.Items) {
		f.Error(problem)
	}
	return places
}

// placesOf returns the namespaces that a node's links are in, keyed by the links' hardware addresses, and any
// inconsistencies.
func placesOf(all []space) (places map[string]string, problems []string) {
	places = map[string]string{}
	for _, s := range all {
		for _, l := range s.links {
			if l.Info.Kind != "veth" || !strings.HasPrefix(l.Address, "02:4c:41:43:") {
				continue
			}
			if place, duplicate := places[l.Address]; duplicate {
				problems = append(problems, fmt.Sprintf("link %s is in %s and in %s", l.Address, place, s))
			}
			places[l.Address] = s.String()
		}
	}
	if want := len(personas()) + 1; len(places) != want { // plus the uplink
		problems = append(problems, fmt.Sprintf("there are %d of %d links: %v", len(places), want, places))
	}
	return places, problems
}

// allocatedTwice returns the devices that are allocated to two claims without being shared.
func allocatedTwice(claims []resourceapi.ResourceClaim) (problems []string) {
	owners := map[string]string{}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			device, name := result.Pool+"/"+result.Device, claim.Namespace+"/"+claim.Name
			if result.ShareID != nil {
				continue
			}
			if owner, duplicate := owners[device]; duplicate {
				problems = append(problems, fmt.Sprintf("device %s is allocated to %s and %s", device, owner, name))
			}
			owners[device] = name
		}
	}
	return problems
}

// address returns the hardware address of a node's link on the wire, which is the same in every boot.
func (f *fleet) address(n *lab.Node, name string) string {
	f.Helper()
	for _, l := range f.before[n.NodeName()].Links {
		if fields := strings.Fields(l); fields[0] == name {
			return fields[2]
		}
	}
	f.Fatalf("%s has no link %s", n.NodeName(), name)
	return ""
}
