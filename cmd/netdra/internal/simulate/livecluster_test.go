package simulate

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
)

// API paths and responses of a cluster with one node, two shares of a macvlan link, and three topologies for the link.
const (
	pathTopologies = "/apis/networking.dra.io/v1alpha1/networktopologies"
	pathSlices     = "/apis/resource.k8s.io/v1/resourceslices"
	pathTaintRules = "/apis/resource.k8s.io/v1/devicetaintrules"
	pathNamespace  = "/api/v1/namespaces/apps"
	pathPods       = pathNamespace + "/pods/"
)

func answers() map[string]string {
	class := func(topology string) string {
		return fmt.Sprintf(`{metadata: {name: %[1]s-a, labels: {networking.dra.io/topology: %[1]s, networking.dra.io/step: a}},
  spec: {extendedResourceName: example.com/%[1]s, selectors: [{cel: {expression: 'device.driver == "dra.networking"'}}],
  config: [{opaque: {driver: dra.networking, parameters: {networkTopologyRef: {name: %[1]s}, step: a}}}]}}`, topology)
	}
	topology := func(name, spec, step string) string {
		return fmt.Sprintf(`{metadata: {name: %[1]s}, spec: {%[2]ssteps: [{name: a, type: macvlan, %[3]s, `+
			`selector: {cel: "true"}}]}, status: {deviceClasses: [%[1]s-a]}}`, name, spec, step)
	}
	const alone = "claimParameters: [ips], config: {ipam: {type: static}}"
	return map[string]string{
		"/api/v1/nodes":                          `items: [{metadata: {name: n1}, status: {allocatable: {cpu: 4}}}]`,
		"/apis/resource.k8s.io/v1/deviceclasses": "items: [" + class("free") + ", " + class("theirs") + ", " + class("static") + "]",
		pathSlices: `items: [{metadata: {name: s}, spec: {driver: dra.networking, ` +
			`nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1}, devices: [{name: eth0}]}}]`,
		"/apis/resource.k8s.io/v1/resourceclaims": `items: []`,
		pathTopologies: "items: [" + topology("free", "", "ifName: a0") + ", " +
			topology("theirs", "allowedNamespaces: {matchLabels: {team: nobody}}, ", "ifName: a0") + ", " +
			topology("static", "", alone) + "]",
		pathNamespace: `metadata: {name: apps, labels: {team: ours}}`,
	}
}

// TestPodsOfACluster tests pods in a cluster. kube-scheduler creates the claim for extended resources last; for a
// pending pod, the simulation still predicts whether the driver would refuse that claim.
func TestPodsOfACluster(t *testing.T) {
	const held = `items: [{metadata: {name: first-extended-resources-x, namespace: apps, uid: u}, spec: {devices: {requests: [{name: r}]}},
  status: {allocation: {devices: {results: [{request: r, driver: dra.networking, pool: n1, device: eth0}]}}}}]`
	for name, test := range map[string]struct {
		limits, status string
		claims, uses   string            // claims of the pod, and a claim that the pod does not reference
		change         map[string]string // modified responses; an empty response means forbidden
		want           []string
		not            string
	}{
		"free": {limits: "example.com/free: 1", want: []string{"✓ pod apps/p fits on n1", "p-extended-resources", "eth0"},
			not: "!"},
		"in use": {limits: "example.com/free: 1", change: map[string]string{"/apis/resource.k8s.io/v1/resourceclaims": held},
			want: []string{"does not fit", "other claims hold the required devices",
				"It fits when this claim is released: apps/first-extended-resources-x"}},
		"running": {limits: "example.com/free: 1",
			status: "{phase: Running, extendedResourceClaimStatus: {resourceClaimName: own}}", uses: "own",
			want: []string{"✓ all claims of pod apps/p have their devices, and it is running", "eth0"}},
		"out of service": {limits: "example.com/free: 1", change: map[string]string{pathTaintRules: taintRules},
			want: []string{"✗ pod apps/p does not fit", "eth0 (example.com/repair=cable)"}, not: "!"},
		"out of service, of Kubernetes 1.36": {limits: "example.com/free: 1", change: map[string]string{
			strings.Replace(pathTaintRules, "v1", "v1beta2", 1): taintRules},
			want: []string{"✗ pod apps/p does not fit", "eth0 (example.com/repair=cable)"}, not: "!"},
		"DeviceTaintRules may not be read": {limits: "example.com/free: 1",
			change: map[string]string{pathTaintRules: ""}, want: []string{"✓ pod apps/p fits on n1",
				"cannot list the DeviceTaintRules: anna may not do that; devices that they take out of service"}},
		"devices with groups, which the cluster must have": {limits: "example.com/free: 1", change: map[string]string{
			pathSlices: groupedSlices}, want: []string{"✓ pod apps/p fits on n1"}, not: "!"},
		"devices with binding conditions": {limits: "example.com/free: 1", change: map[string]string{
			pathSlices: strings.Replace(answers()[pathSlices], "name: eth0",
				"name: eth0, bindingConditions: [a], bindingFailureConditions: [b]", 1)},
			want: []string{"✓ pod apps/p fits on n1"}, not: "!"},
		"no claim": {limits: "cpu: 1", want: []string{"cannot simulate pod apps/p: it references no claim and " +
			"requests " +
			`no extended resource of a DeviceClass; "kubectl describe pod p -n apps" shows what it waits for`}},
		"a claim that another pod uses": {claims: "[{name: net, resourceClaimName: only}]", want: []string{
			"✗ pod apps/p has devices on n1, but they cannot be attached:\n",
			"cannot attach claim apps/only: pod apps/first uses its exclusive device"}},
		"a claim of two pods: the other one has started": {claims: "[{name: net, resourceClaimName: both}]",
			change: map[string]string{pathPods + "other": otherPod("u2", "running: {}")}, want: []string{
				"✗ pod apps/p has devices on n1, but they cannot be attached:\n",
				"cannot attach claim apps/both: pod apps/other uses its exclusive device"}},
		"a claim of two pods, of which this one has started": {claims: "[{name: net, resourceClaimName: both}]",
			status: started, change: map[string]string{pathPods + "other": ""},
			want: []string{"✓ all claims of pod apps/p have their devices, and it is running"}, not: "!"},
		"a claim of two pods, of which none has started": {claims: "[{name: net, resourceClaimName: both}]",
			change: map[string]string{pathPods + "other": otherPod("u2", "waiting: {}")},
			want: []string{"✓ all claims of pod apps/p have their devices, and no known problem prevents it from " +
				"starting"}, not: "!"},
		"a claim of two pods: one was recreated": {claims: "[{name: net, resourceClaimName: both}]",
			change: map[string]string{pathPods + "other": otherPod("u3", "running: {}")},
			want: []string{"✓ all claims of pod apps/p have their devices, and no known problem prevents it from " +
				"starting"}, not: "!"},
		"a claim of two pods: one may not be read": {claims: "[{name: net, resourceClaimName: both}]",
			change: map[string]string{pathPods + "other": ""}, want: []string{
				"✗ pod apps/p has devices on n1, but they cannot be attached:\n",
				"pod apps/other uses its exclusive device",
				"cannot determine which pod uses claim apps/both: cannot get pod apps/other: anna may not do that"}},
		"running, and its topology is gone": {claims: "[{name: net, resourceClaimName: own}]", status: started,
			change: map[string]string{"/apis/resource.k8s.io/v1/deviceclasses": "items: []",
				pathTopologies: "items: []"},
			want: []string{"✓ all claims of pod apps/p have their devices, and it is running"}, not: "!"},
		"not started, and its topology is gone": {claims: "[{name: net, resourceClaimName: own}]",
			change: map[string]string{"/apis/resource.k8s.io/v1/deviceclasses": "items: []",
				pathTopologies: "items: []"},
			want: []string{"✗ pod apps/p has devices on n1, but they cannot be attached:", "free"}},
		"a template that is not there": {claims: "[{name: net, resourceClaimTemplateName: c5}]", want: []string{
			"✗ pod apps/p does not fit\n  it names the ResourceClaimTemplate c5, which is neither in the files nor in namespace apps "}},
		"a claim with devices": {claims: "[{name: net, resourceClaimName: own}]",
			want: []string{"✓ all claims of pod apps/p have their devices, and no known problem prevents it from " +
				`starting; "kubectl describe pod p -n apps" and "kubectl netdra claims pod/p -n apps" show what `}},
		"a claim with devices that the driver refuses": {claims: "[{name: net, resourceClaimName: bad}]",
			want: []string{"✗ pod apps/p has devices on n1, but they cannot be attached:",
				`claim apps/bad sets mac of step "a", which the topology does not allow`}, not: "have their devices"},
		"a claim with devices that the node could not attach": {claims: "[{name: net, resourceClaimName: failed}]",
			want: []string{"✗ pod apps/p has devices on n1, but", "claim apps/failed: StepFailed: macvlan is missing"}},
		"a claim whose chain fails while the pod has a sandbox": {claims: "[{name: net, resourceClaimName: failed}]",
			status: "{conditions: [{type: PodReadyToStartContainers, status: 'True'}], containerStatuses: " +
				"[{state: {waiting: {}}}]}",
			want: []string{"✗ pod apps/p has devices on n1, but they cannot be attached:"}},
		"a claim that the driver would refuse now, of a pod that has started": {
			claims: "[{name: net, resourceClaimName: bad}]", status: started,
			want: []string{"✓ all claims of pod apps/p have their devices, and it is running"}, not: "!"},
		"a claim that has lost an interface since the pod started": {claims: "[{name: net, resourceClaimName: failed}]",
			status: started,
			want: []string{"✗ pod apps/p has started with devices on n1, but some of them have problems:",
				"claim apps/failed: StepFailed: macvlan is missing"}},
		"running, and topologies may not be read": {claims: "[{name: net, resourceClaimName: own}]", status: started,
			change: map[string]string{"/apis/resource.k8s.io/v1/deviceclasses": "items: []", pathTopologies: ""},
			want:   []string{"and it is running", "cannot list the NetworkTopologies"}, not: "deleted"},
		"another namespace's": {limits: "deviceclass.resource.kubernetes.io/theirs-a: 1",
			want: []string{"would get devices on n1, but is refused:\n",
				"NetworkTopology theirs may not be used in namespace apps: its allowedNamespaces require team=nobody"}},
		"a namespace that is not known": {limits: "example.com/theirs: 1", change: map[string]string{pathNamespace: ""},
			want: []string{"✓ pod apps/p fits on n1", "NetworkTopology theirs may not be used in namespace apps",
				"if the namespace has such labels, pass it with -f, too"}},
		"addresses that no claim says": {limits: "example.com/static: 1", want: []string{
			"would get devices on n1, but is refused:\n",
			`NetworkTopology static: spec.steps[0].claimParameters: Required value: claim apps/p-extended-resources has no ` +
				`ips for step "a", which gets addresses from claims only`}},
		"topologies that may not be read": {limits: "example.com/theirs: 1", change: map[string]string{pathTopologies: ""},
			want: []string{"✓ pod apps/p fits on n1", "cannot list the NetworkTopologies: anna may not do that",
				"their restrictions are not checked; request the ClusterRole dra-network-view"}},
		"claims that may not be listed": {limits: "example.com/free: 1",
			change: map[string]string{"/apis/resource.k8s.io/v1/resourceclaims": ""},
			want: []string{"cannot list the ResourceClaims", "request the ClusterRole " +
				"dra-network-capacity"}, not: "fits"},
		"a device plugin": {limits: "example.com/free: 1", change: map[string]string{
			"/api/v1/nodes": `items: [{metadata: {name: n1}, status: {allocatable: {example.com/free: 2}}},
  {metadata: {name: n2}, status: {allocatable: {example.com/free: 0}}}]`},
			want: []string{"✓ pod apps/p fits on n1", "a device plugin offers example.com/free on n1: there pod apps/p gets " +
				"devices of the plugin, regardless of the result for DeviceClass free-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			served := answers()
			maps.Copy(served, test.change)
			served[pathPods+"p"] = fmt.Sprintf(`{metadata: {name: p, namespace: apps, uid: u1}, spec: {containers: `+
				`[{name: c, resources: {limits: {%s}}}], resourceClaims: %s}, status: %s}`, test.limits,
				cmp.Or(test.claims, "[]"), cmp.Or(test.status, "{}"))
			for name, claim := range claimsWithDevices() {
				if strings.Contains(test.claims, name+"}") || test.uses == name {
					served["/apis/resource.k8s.io/v1/resourceclaims"] = "items: [" + claim + "]"
					served["/apis/resource.k8s.io/v1/namespaces/apps/resourceclaims/"+name] = claim
				}
			}
			output := simulated(t, "", served, Options{Pods: []string{"apps/p"}})
			for _, want := range test.want {
				if !strings.Contains(output, want) {
					t.Errorf("output lacks %q:\n%s", want, output)
				}
			}
			if test.not != "" && strings.Contains(output, test.not) {
				t.Errorf("output contains %q:\n%s", test.not, output)
			}
		})
	}
}

// taintRules contain three rules. Only the last one matches the device in the cluster.
const taintRules = `items: [
  {metadata: {name: nothing}, spec: {taint: {key: a, effect: NoSchedule}}},
  {metadata: {name: other}, spec: {deviceSelector: {pool: n2}, taint: {key: b, effect: NoSchedule}}},
  {metadata: {name: theirs}, spec: {deviceSelector: {driver: example.com, device: eth0},
    taint: {key: c, effect: NoSchedule}}},
  {metadata: {name: repair}, spec: {deviceSelector: {driver: dra.networking, device: eth0},
    taint: {key: example.com/repair, value: cable, effect: NoSchedule}}}]`

// groupedSlices contain a device with a compatibility group. An API server would drop that field if the feature were
// disabled.
const groupedSlices = `items: [
  {metadata: {name: c}, spec: {driver: dra.networking, nodeName: n1,
    pool: {name: n1, generation: 1, resourceSliceCount: 2},
    sharedCounters: [{name: s, counters: {slots: {value: "2"}}}]}},
  {metadata: {name: s}, spec: {driver: dra.networking, nodeName: n1,
    pool: {name: n1, generation: 1, resourceSliceCount: 2},
    devices: [{name: eth0, consumesCounters: [{counterSet: s, compatibilityGroups: [shared],
    counters: {slots: {value: "1"}}}]}]}}]`

// started is the status of a pod with a running container.
const started = "{phase: Running, containerStatuses: [{state: {running: {}}}]}"

// otherPod returns the pod "other" in namespace apps, whose container has the given state.
func otherPod(uid, state string) string {
	return fmt.Sprintf(`{metadata: {name: other, namespace: apps, uid: %s}, status: {containerStatuses: [`+
		`{state: {%s}}]}}`, uid, state)
}

// claimsWithDevices returns claims in namespace apps that hold the device in the cluster.
func claimsWithDevices() map[string]string {
	claim := func(name, config, user, devices string) string {
		return fmt.Sprintf(`{metadata: {name: %s, namespace: apps, uid: u}, spec: {devices: {requests: [{name: r, `+
			`exactly: {deviceClassName: free-a}}]}}, status: {allocation: {devices: {results: [{request: r, driver: `+
			`dra.networking, pool: n1, device: eth0}], config: [%s{source: FromClass, opaque: {driver: `+
			`dra.networking, parameters: {networkTopologyRef: {name: free}, step: a}}}]}}, reservedFor: [{resource: `+
			`pods, uid: u, name: %s}], devices: [%s]}}`, name, config, user, devices)
	}
	return map[string]string{
		"only": claim("only", "", "first", ""),
		"own":  claim("own", "", "p", ""),
		"ours": claim("ours", "", "q", ""),
		"both": strings.ReplaceAll(claim("both", "", "other}, {resource: pods, uid: u1, name: p", ""),
			"uid: u, name: other", "uid: u2, name: other"),
		"bad": claim("bad", `{source: FromClaim, opaque: {driver: dra.networking, parameters: {mac: `+
			`"02:00:00:00:00:01"}}}, `, "p", ""),
		"failed": claim("failed", "", "p", "{driver: dra.networking, pool: n1, device: eth0, conditions: [{"+
			`type: Ready, status: "False", reason: StepFailed, message: macvlan is missing}]}`),
	}
}

// If a pod references a claim or template that is not in any file, the object is read from the cluster.
func TestPodsOfFilesNameObjectsOfTheCluster(t *testing.T) {
	const namespace = "/apis/resource.k8s.io/v1/namespaces/apps/"
	const listed, template, claim = "/apis/resource.k8s.io/v1/resourceclaims", namespace + "resourceclaimtemplates/lan",
		namespace + "resourceclaims/lan"
	const wants = "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: free-a, count: 1, " +
		"allocationMode: ExactCount}}]}}"
	const pending = "{metadata: {name: lan, namespace: apps, uid: u}, " + wants + "}"
	const templateText = "metadata: {name: lan, namespace: apps}\nspec: {" + wants + "}"
	held := func(name string) map[string]string {
		held := strings.Replace(claimsWithDevices()[name], "name: "+name, "name: lan", 1)
		return map[string]string{claim: held, listed: "items: [" + held + "]"}
	}
	const ofTemplate, ofClaim = "resourceClaimTemplateName: lan", "resourceClaimName: lan"
	const refused, advice = ": anna may not do that; ", "pass it with -f, or request the permission"
	for name, test := range map[string]struct {
		reference, more string
		change          map[string]string
		want            []string
	}{
		"a template": {ofTemplate, "", map[string]string{template: templateText},
			[]string{"✓ pod apps/q fits on n1", "q-net  r        eth0"}},
		"a claim": {ofClaim, "", map[string]string{claim: pending},
			[]string{"✓ pod apps/q fits on n1", "lan    r        eth0"}},
		"a claim that has devices": {ofClaim, "", held("ours"),
			[]string{"✓ pod apps/q fits on n1", "lan    r        eth0"}},
		"a claim whose devices another pod uses": {ofClaim, "", held("only"),
			[]string{"cannot attach claim apps/lan: pod apps/first uses its exclusive device"}},
		"a template of a file": {ofTemplate, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n" +
			strings.Replace(templateText, "free-a", "theirs-a", 1), map[string]string{template: templateText},
			[]string{"NetworkTopology theirs may not be used in namespace apps"}},
		"no template": {ofTemplate, "", nil, []string{"✗ pod apps/q does not fit\n  it names the " +
			"ResourceClaimTemplate lan, which is neither in the files nor in namespace apps of the cluster; pass it"}},
		"no claim": {ofClaim, "", nil, []string{"it names the ResourceClaim lan, which is neither in the files nor "}},
		"a template that may not be read": {ofTemplate, "", map[string]string{template: ""},
			[]string{"cannot get its ResourceClaimTemplate lan" + refused + advice}},
		"a claim that may not be read": {ofClaim, "", map[string]string{claim: ""},
			[]string{"cannot get its ResourceClaim lan" + refused + advice}},
	} {
		t.Run(name, func(t *testing.T) {
			served := answers()
			maps.Copy(served, test.change)
			file := "apiVersion: v1\nkind: Pod\nmetadata: {name: q, namespace: apps}\nspec: {containers: [], " +
				"resourceClaims: [{name: net, " + test.reference + "}]}\n---\n" + test.more
			output := simulated(t, file, served, Options{Files: []string{"-"}, Cluster: true})
			for _, want := range test.want {
				if !strings.Contains(output, want) {
					t.Errorf("output lacks %q:\n%s", want, output)
				}
			}
		})
	}
}

// Objects without a namespace get the namespace from the flag or from the context, as in kubectl.
func TestNamespaceOfACluster(t *testing.T) {
	const file = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n" +
		"spec: {devices: {requests: [{name: r, exactly: {deviceClassName: free-a}}]}}\n---\n" +
		"apiVersion: v1\nkind: Pod\nmetadata: {name: q}\nspec: {containers: [], resourceClaims: [{name: net, " +
		"resourceClaimName: c}]}"
	for want, options := range map[string]Options{
		"pod default/q": {},
		"pod apps/q":    {Context: "in-apps"},
		"pod more/q":    {Context: "in-apps", Namespace: "more"},
	} {
		options.Files, options.Cluster = []string{"-"}, true
		if output := simulated(t, file, answers(), options); !strings.Contains(output, "✓ "+want+" fits on n1") {
			t.Errorf("output lacks %q:\n%s", want, output)
		}
		options.Files, options.Pods = nil, []string{"q"}
		if output := simulated(t, "", answers(), options); !strings.Contains(output, "cannot get "+want) {
			t.Errorf("output lacks %q:\n%s", want, output)
		}
	}
	output := simulated(t, file, answers(), Options{Context: "none", Files: []string{"-"}, Cluster: true})
	if !strings.Contains(output, `context "none" does not exist`) {
		t.Errorf("want an error about the nonexistent context, got:\n%s", output)
	}
}

// simulated runs "simulate" against a cluster that serves the given objects, and returns its output.
func simulated(t *testing.T, file string, served map[string]string, options Options) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	options.Output, options.Kubeconfig = "text", serve(t, served)
	err := options.Run(context.Background(), osdeps.Deps{}, printer.Streams{In: strings.NewReader(file), Out: &stdout,
		Err: &stderr})
	return fmt.Sprint(stdout.String(), stderr.String(), err)
}

// serve starts an API server that responds with YAML, and returns the path of a kubeconfig for it.
func serve(t *testing.T, served map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, found := served[r.URL.Path]
		code := http.StatusOK
		switch {
		case !found:
			code, text = http.StatusNotFound, "{kind: Status, apiVersion: v1, status: Failure, reason: NotFound, code: 404}"
		case text == "":
			code, text = http.StatusForbidden, "{kind: Status, apiVersion: v1, status: Failure, reason: Forbidden, "+
				"code: 403, message: anna may not do that}"
		}
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Errorf("cannot convert the response for %s: %v", r.URL.Path, err)
		}
		w.WriteHeader(code)
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: "+
		"{cluster: c}}, {name: in-apps, context: {cluster: c, namespace: apps}}], clusters: [{name: c, cluster: "+
		"{server: %q}}]}", server.URL)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
