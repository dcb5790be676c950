package nodepage

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/calllog"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/discovery/discoverytest"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
	"github.com/dra-networking/dra-network-driver/policy/v1alpha1"
)

// renamed replaces every name in a node with another one, including occurrences inside longer texts.
func renamed(t *testing.T, node Node, name string) Node {
	t.Helper()
	encoded, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(encoded)
	for _, old := range []string{"enp3s0f1", "store-0", "store-bond", "db-net", "db-0", "worker-1", "no IP addresses",
		"vlan7", "operation not supported", "exclude-management", "mlx5_core", "a test", "bandwidth",
		"tuning", "tune"} {
		if !strings.Contains(text, old) {
			t.Fatalf("the node has no %q", old)
		}
		text = strings.ReplaceAll(text, old, string(quoted[1:len(quoted)-1]))
	}
	var renamed Node
	if err := json.Unmarshal([]byte(text), &renamed); err != nil {
		t.Fatal(err)
	}
	return renamed
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
			t.Errorf("%q is in the page as it is", hostile)
		}
	}
}

// The configuration of steps may contain secrets, so the page shows neither their inputs nor templates.
func TestNoConfiguration(t *testing.T) {
	node := liveNode(t)
	node.Claims[0].Plans[0].Steps[0].Config = json.RawMessage(`{"psk": "hunter2"}`)
	node.Calls["shop/web-net"][0].Stdin = json.RawMessage(`{"psk": "hunter2"}`)
	if page := written(t, node); strings.Contains(page, "hunter2") {
		t.Error("the page contains a secret")
	}
}

// Log output is truncated so that the calls of one claim cannot make the page too large for a browser.
func TestLongOutputs(t *testing.T) {
	node := liveNode(t)
	call := called("5f1c0ffee0000001", "uplink", "ADD", "macvlan", 1, "")
	call.Stderr = strings.Repeat("ü", 1<<20)
	for range 100 {
		node.Calls["shop/web-net"] = append(node.Calls["shop/web-net"], call)
	}
	if page := written(t, node); len(page) > 100<<10 ||
		!strings.Contains(page, "12 plugin calls, 90 earlier calls omitted") {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// thousand returns a node with 1,024 devices and the default maximum number of pods per kubelet, each with a chain of
// two steps.
func thousand(t *testing.T) Node {
	t.Helper()
	policy := func(name, which string) v1alpha1.DeviceExposurePolicy {
		p := v1alpha1.DeviceExposurePolicy{}
		p.Name = name
		p.Spec = v1alpha1.DeviceExposurePolicySpec{Priority: 100, Action: v1alpha1.ActionExpose,
			Selector: v1alpha1.DeviceSelector{CEL: `device.attributes["dra.networking"].type == "` + which + `"`},
			Exposure: &v1alpha1.Exposure{SupportedCNIPlugins: []v1alpha1.CNIPlugin{{Name: "host-device",
				Exclusive: true}}}}
		return p
	}
	node := nodeWith(t, discoverytest.Machine(8, 127),
		[]v1alpha1.DeviceExposurePolicy{policy("functions", "vf"), policy("ports", "pf")})
	node.Asked, node.Calls = true, map[string][]calllog.Call{}
	const pods = 110
	for i := 0; len(node.Claims) < pods; i++ {
		entry := &node.Result.Entries[i*7]
		if entry.Device.Type != "vf" {
			continue
		}
		name, box := fmt.Sprintf("pod-%d-net", i), fmt.Sprintf("5f1c0ffee%07d", i)
		node.Claims = append(node.Claims,
			claim("shop", name, []nodestate.HeldDevice{{Request: "net", Pool: entry.Pool, Name: entry.Name}},
				cnichain.PlanStep{Name: "nic", Type: "host-device", Device: &cnichain.Device{Name: entry.Name}},
				cnichain.PlanStep{Name: "tune", Type: "tuning", DependsOn: []int{0}}))
		node.Sandboxes = append(node.Sandboxes,
			nodestate.Sandbox{ID: box, Pod: executor.Pod{Namespace: "shop", Name: name},
				Claims: []string{"shop-" + name}, State: "ready"})
		node.Calls["shop/"+name] = []calllog.Call{
			called(box, "nic", "ADD", "host-device", 13,
				`{"cniVersion":"1.0.0","interfaces":[{"name":"net1","sandbox":"/x"}]}`),
			called(box, "tune", "ADD", "tuning", 4, `{"cniVersion":"1.0.0"}`)}
	}
	return node
}

// On narrow screens the style sheet labels the columns of steps by position. The labels must match the header.
func TestNarrowStepsNameTheirColumns(t *testing.T) {
	_, table, _ := strings.Cut(pageHTML, `<table class="stack steps"`)
	header, _, _ := strings.Cut(table, "</thead>")
	columns := regexp.MustCompile(`<th [^>]*>([A-Za-z]+)</th>`).FindAllStringSubmatch(header, -1)
	if len(columns) != 7 {
		t.Fatalf("the header has the columns %q", columns)
	}
	for i, column := range columns[1:] { // the first column is the row header
		rule := fmt.Sprintf(`.steps td:nth-child(%d)::before { content: "%s: "; }`, i+2, column[1])
		if !strings.Contains(pageCSS, rule) {
			t.Errorf("the style sheet has no rule %s", rule)
		}
	}
}

func TestThousandDevicesAreASmallPage(t *testing.T) {
	node := thousand(t)
	if n := len(node.Facts.Devices); n != 1024 {
		t.Fatalf("%d devices", n)
	}
	idle := node
	idle.Claims, idle.Sandboxes, idle.Calls = nil, nil, nil
	for name, test := range map[string]struct {
		node Node
		most int
	}{"idle": {idle, 100 << 10}, "110 pods": {node, 450 << 10}} {
		page := written(t, test.node)
		t.Logf("%s: %d KB", name, len(page)>>10)
		if len(page) > test.most {
			t.Errorf("%s: the page has %d KB, and may have %d", name, len(page)>>10, test.most>>10)
		}
		for i := range node.Facts.Devices {
			if !strings.Contains(page, ">"+string(node.Facts.Devices[i].Name)) {
				t.Fatalf("%s: the page does not name %s", name, node.Facts.Devices[i].Name)
			}
		}
	}
}

// Text has the contrast that WCAG 2.2 AA requires (4.5 for text, 3 for other visible elements) on light and dark pages.
func TestContrast(t *testing.T) {
	light, dark, found := strings.Cut(pageCSS, "@media (prefers-color-scheme: dark)")
	if !found {
		t.Fatal("there are no colours for dark mode")
	}
	pairs := map[string]float64{}
	for _, ground := range []string{"page", "card", "use-ground"} { // the last is for link targets
		for _, text := range []string{"text", "quiet", "link", "free", "use", "blocked", "bad", "hidden"} {
			pairs[text+" on "+ground] = 4.5
		}
		pairs["edge on "+ground] = 3
	}
	for _, state := range []string{"free", "use", "blocked", "bad", "hidden"} {
		pairs[state+" on "+state+"-ground"] = 4.5
		pairs["text on "+state+"-ground"] = 4.5
	}
	for scheme, css := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, match := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
			colours[match[1]] = match[2]
		}
		for pair, least := range pairs {
			text, ground, _ := strings.Cut(pair, " on ")
			if got := contrast(t, colours[text], colours[ground]); got < least {
				t.Errorf("%s: %s has the contrast %.2f, and must have %.1f", scheme, pair, got, least)
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
			t.Fatalf("no colour: %q", colour)
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
