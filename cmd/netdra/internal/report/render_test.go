package report

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/nodeclient"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/offers"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/discovery"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
	draslices "github.com/dra-networking/dra-network-driver/slices"
)

// parts contains the parts of a fixture that the page shows.
type parts struct {
	Node     policy.Node
	Facts    discovery.Facts
	Policies []v1alpha1.DeviceExposurePolicy
	Decision policy.Decision
	Result   draslices.Result
	Answers  *nodestate.Answers
	Devices  []nodeclient.Device
	Calls    map[string][]calllog.Call
	Findings []doctor.Finding
}

// renamed replaces every name on a node with another name, including occurrences within longer strings.
func renamed(t *testing.T, node *fixture, name string) *fixture {
	t.Helper()
	before := node.Snapshot
	encoded, err := json.Marshal(parts{before.Node, before.Facts, before.Policies, before.Decision, before.Result, before.Answers,
		before.Devices, node.Calls, node.Findings})
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(encoded)
	for _, old := range []string{"enp3s0f1", "store-0", "store-bond", "db-net", "db-0", "worker-1", "no IP addresses",
		"vlan7", "operation not supported", "exclude-management", "mlx5_core", "bandwidth",
		"tuning", "tune"} {
		if !strings.Contains(text, old) {
			t.Fatalf("the node lacks %q", old)
		}
		text = strings.ReplaceAll(text, old, string(quoted[1:len(quoted)-1]))
	}
	var renamed parts
	if err := json.Unmarshal([]byte(text), &renamed); err != nil {
		t.Fatal(err)
	}
	return &fixture{&offers.Snapshot{Node: renamed.Node, Facts: renamed.Facts, Policies: renamed.Policies,
		Decision: renamed.Decision, Result: renamed.Result, Answers: renamed.Answers, Devices: renamed.Devices},
		renamed.Calls, renamed.Findings}
}

// Names and errors are always rendered as text: a page with hostile names has the same elements and attributes as a
// page with harmless names.
func TestTextIsNoMarkup(t *testing.T) {
	tags := func(page string) map[string]int {
		counts := map[string]int{}
		for _, tag := range regexp.MustCompile(`<[^>]*>`).FindAllString(page, -1) {
			counts[regexp.MustCompile(`="[^"]*"`).ReplaceAllString(tag, "")]++
		}
		return counts
	}
	want := tags(written(t, renamed(t, liveNode(t), "harmless")))
	for _, hostile := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`,
		`" onmouseover="alert(1)`, `</title></style></script>`,
		`<!--`, `-->`, `{{.Page}}`, `javascript:alert(1)`, `&lt;b&gt;`, "\u202Eevil", "\x00\x1b[31m",
	} {
		page := written(t, renamed(t, liveNode(t), hostile))
		if diff := cmp.Diff(want, tags(page)); diff != "" {
			t.Errorf("%q (-harmless +hostile):\n%s", hostile, diff)
		}
		if strings.ContainsAny(hostile, "<>\"'") && strings.Contains(page, hostile) {
			t.Errorf("the page contains %q unescaped", hostile)
		}
	}
}

// Step configurations may contain secrets, so the page contains neither the steps' inputs nor their templates.
func TestNoConfiguration(t *testing.T) {
	node := liveNode(t)
	node.Snapshot.Answers.Claims[0].Plans[0].Steps[0].Config = json.RawMessage(`{"psk": "hunter2"}`)
	node.Calls["shop/web-net"][0].Stdin = json.RawMessage(`{"psk": "hunter2"}`)
	if page := written(t, node); strings.Contains(page, "hunter2") {
		t.Error("the page contains a secret")
	}
}

// Log output is truncated, so that the calls for a single claim cannot make the page too large for a browser.
func TestLongOutputs(t *testing.T) {
	node := liveNode(t)
	call := called("5f1c0ffee0000001", "uplink", "ADD", "macvlan", 1, "")
	call.ClaimUID, call.Stderr = "shop-web-net", strings.Repeat("ü", 1<<20)
	for range 100 {
		node.Calls["shop/web-net"] = append(node.Calls["shop/web-net"], call)
	}
	if page := written(t, node); len(page) > 100<<10 || !strings.Contains(page, "78 earlier calls omitted") {
		t.Errorf("the page has %d bytes, want a smaller one that omits earlier calls", len(page))
	}
}

// thousand returns a node with 1,024 devices and as many pods as a kubelet runs by default. Each pod has a two-step
// chain.
func thousand(t *testing.T) *fixture {
	t.Helper()
	made := func(name, which string) v1alpha1.DeviceExposurePolicy {
		p := v1alpha1.DeviceExposurePolicy{}
		p.Name = name
		p.Spec = v1alpha1.DeviceExposurePolicySpec{Priority: 100, Action: v1alpha1.ActionExpose,
			Selector: v1alpha1.DeviceSelector{CEL: `device.attributes["dra.networking"].type == "` + which + `"`},
			Exposure: &v1alpha1.Exposure{SupportedCNIPlugins: []v1alpha1.CNIPlugin{{Name: "host-device",
				Exclusive: true}}}}
		return p
	}
	node := nodeWith(t, discoverytest.Machine(8, 127),
		[]v1alpha1.DeviceExposurePolicy{made("functions", "vf"), made("ports", "pf")})
	node.Calls = map[string][]calllog.Call{}
	const pods = 110
	var claims []nodestate.Claim
	var sandboxes []nodestate.Sandbox
	for i := 0; len(claims) < pods; i++ {
		entry := &node.Snapshot.Result.Entries[i*7]
		if entry.Device.Type != "vf" {
			continue
		}
		name, box := fmt.Sprintf("pod-%d-net", i), fmt.Sprintf("5f1c0ffee%07d", i)
		claims = append(claims,
			madeClaim("shop", name, []nodestate.HeldDevice{{Request: "net", Pool: entry.Pool, Name: entry.Name}},
				cnichain.PlanStep{Name: "nic", Type: "host-device", Device: &cnichain.Device{Name: entry.Name}},
				cnichain.PlanStep{Name: "tune", Type: "tuning", DependsOn: []int{0}}))
		sandboxes = append(sandboxes,
			nodestate.Sandbox{ID: box, Pod: executor.Pod{Namespace: "shop", Name: name},
				Claims: []string{"shop-" + name}, State: "ready"})
		node.Calls["shop/"+name] = []calllog.Call{
			called(box, "nic", "ADD", "host-device", 13,
				`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/x"}]}`),
			called(box, "tune", "ADD", "tuning", 4, `{"cniVersion":"1.0.0"}`)}
		for j := range node.Calls["shop/"+name] {
			node.Calls["shop/"+name][j].ClaimUID = "shop-" + name
		}
	}
	node.answer(claims, sandboxes)
	return node
}

func TestThousandDevicesAreASmallPage(t *testing.T) {
	node := thousand(t)
	if n := len(node.Snapshot.Facts.Devices); n != 1024 {
		t.Fatalf("got %d devices, want 1024", n)
	}
	idle := thousand(t)
	idle.answer(nil, nil)
	for name, test := range map[string]struct {
		node *fixture
		most int
	}{"idle": {idle, 800 << 10}, "110 pods": {node, 1000 << 10}} {
		page := written(t, test.node)
		t.Logf("%s: page size %d KB", name, len(page)>>10)
		if len(page) > test.most {
			t.Errorf("%s: the page has %d KB, want at most %d", name, len(page)>>10, test.most>>10)
		}
		for i := range node.Snapshot.Facts.Devices {
			if device := string(node.Snapshot.Facts.Devices[i].Name); !strings.Contains(page, ">"+device+" ") {
				t.Fatalf("%s: the page does not name %s", name, device)
			}
		}
	}
}

// Text has the contrast required by WCAG 2.2 AA (4.5 for text, 3 for other visible elements) in both light and dark
// mode.
func TestContrast(t *testing.T) {
	light, dark, found := strings.Cut(pageCSS, "@media (prefers-color-scheme: dark)")
	if !found {
		t.Fatal("the page has no colors for dark mode")
	}
	pairs := map[string]float64{}
	for _, ground := range []string{"page", "card"} {
		for _, text := range []string{"text", "quiet", "link", "free", "use", "blocked", "bad"} {
			pairs[text+" on "+ground] = 4.5
		}
	}
	pairs["text on bad-ground"] = 4.5
	for scheme, css := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, match := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
			colours[match[1]] = match[2]
		}
		for pair, least := range pairs {
			text, ground, _ := strings.Cut(pair, " on ")
			if got := contrast(t, colours[text], colours[ground]); got < least {
				t.Errorf("%s: the contrast of %s is %.2f, want at least %.1f", scheme, pair, got, least)
			}
		}
	}
}

// contrast returns the contrast ratio defined by WCAG 2.2.
func contrast(t *testing.T, path, other string) float64 {
	t.Helper()
	a, b := luminance(t, path), luminance(t, other)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		if len(colour) != 6 {
			t.Fatalf("not a color: %q", colour)
		}
		n, err := strconv.ParseUint(colour[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return sum
}
