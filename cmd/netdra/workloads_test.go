package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/simulate"
)

// eightFunctions exposes the eight virtual functions of the fixture, and contains a claim template for two of them.
const eightFunctions = `apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: p}
spec:
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  exposure: {supportedCNIPlugins: [{name: sriov, exclusive: true}]}
---
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: vf}
spec: {steps: [{name: a, type: sriov, selector: {cel: "true"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: lan}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: vf-a, count: 2}}]}}}
`

// workloadPod is a pod template with a claim generated from the claim template lan.
const workloadPod = "{spec: {containers: [], resourceClaims: [{name: net, resourceClaimTemplateName: lan}]}}"

// simulated runs "netdra simulate" on the machine with eight virtual functions.
func simulated(t *testing.T, documents ...string) (code int, answers []simulate.Answer, stderr string) {
	t.Helper()
	code, stdout, stderr := runNetdra(t, eightFunctions+strings.Join(append([]string{""}, documents...), "\n---\n"),
		"simulate", "-f", "-", "--machines", "../../discovery/testdata/igb-4vfs", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &answers); err != nil {
		t.Fatalf("exit status %d, %v:\n%s%s", code, err, stdout, stderr)
	}
	return code, answers, stderr
}

// summarize returns the answers for all pods on one line.
func summarize(answers []simulate.Answer) string {
	var texts []string
	for i := range answers {
		text := strings.TrimPrefix(answers[i].What, "pod default/")
		if !answers[i].Fits {
			text += "!"
		}
		if answers[i].As != "" {
			text += " as " + strings.TrimPrefix(answers[i].As, "pod default/")
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func workloadText(version, kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: {%s}", version, kind, name, spec)
}

// Each pod of a workload is simulated: four claims for two virtual functions each fit, and a fifth does not.
func TestSimulateWorkloads(t *testing.T) {
	template := ", template: " + workloadPod
	for name, test := range map[string]struct {
		documents []string
		want      string
		code      int
	}{
		"deployment": {[]string{workloadText("apps/v1", "Deployment", "five", "replicas: 6, selector: {}"+template)},
			"five-1, five-2, five-3, five-4, five-5!, five-6! as five-5", exit.Failed},
		"default": {[]string{workloadText("apps/v1", "Deployment", "web", "selector: {}"+template)}, "web-1", exit.OK},
		"stateful set": {[]string{workloadText("apps/v1", "StatefulSet", "db", "replicas: 2, selector: {}"+template)},
			"db-0, db-1", exit.OK},
		"ordinals": {[]string{workloadText("apps/v1", "StatefulSet", "db",
			"replicas: 2, ordinals: {start: 7}, selector: {}"+template)}, "db-7, db-8", exit.OK},
		"job": {[]string{workloadText("batch/v1", "Job", "train", "parallelism: 3, completions: 2"+template)},
			"train-1, train-2", exit.OK},
		"controller": {[]string{workloadText("v1", "ReplicationController", "old", "replicas: 2"+template)},
			"old-1, old-2", exit.OK},
		"order": {[]string{workloadText("apps/v1", "Deployment", "a", "replicas: 3, selector: {}"+template),
			workloadText("apps/v1", "ReplicaSet", "b", "replicas: 2, selector: {}"+template)},
			"a-1, a-2, a-3, b-1, b-2!", exit.Failed},
		"as kubectl lists them": {[]string{
			workloadText("apps/v1", "Deployment", "web", "replicas: 2, selector: {}"+template),
			strings.Replace(workloadText("apps/v1", "ReplicaSet", "web-5d8", "replicas: 2, selector: {}"+template),
				"{name: web-5d8}", "{name: web-5d8, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, "+
					"name: web, uid: u, controller: true}]}", 1),
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web-5d8-x, ownerReferences: [{apiVersion: apps/v1, " +
				"kind: ReplicaSet, name: web-5d8, uid: u, controller: true}]}\nspec: {containers: [], " +
				"resourceClaims: [{name: net, resourceClaimTemplateName: lan}]}"}, "web-1, web-2", exit.OK},
	} {
		t.Run(name, func(t *testing.T) {
			code, answers, stderr := simulated(t, test.documents...)
			if diff := cmp.Diff(test.want, summarize(answers)); diff != "" || code != test.code || stderr != "" {
				t.Errorf("exit status %d (-want +got):\n%s%s", code, diff, stderr)
			}
		})
	}
}

// Workloads of unsupported kinds are named in a remark if they have claims, and otherwise ignored.
func TestSimulateNamesOtherWorkloads(t *testing.T) {
	template := "template: " + workloadPod
	for want, document := range map[string]string{
		"! DaemonSet agent is not simulated: netdra simulates pods of Deployment, ": workloadText(
			"apps/v1", "DaemonSet", "agent", "selector: {}, "+template),
		"! CronJob nightly is not simulated: netdra simulates pods of Deployment, ": workloadText("batch/v1", "CronJob",
			"nightly", "schedule: daily, jobTemplate: {spec: {"+template+"}}"),
		"! Job many is not simulated: ": workloadText("batch.volcano.sh/v1alpha1", "Job", "many",
			"tasks: [{replicas: 2, "+template+"}]"),
		"! VirtualMachine vm is not simulated: ": workloadText("kubevirt.io/v1", "VirtualMachine", "vm",
			"template: {spec: {resourceClaims: [{name: net}]}}"),
		"! Deployment idle has no pods: it has 0 replicas": workloadText("apps/v1", "Deployment", "idle",
			"replicas: 0, selector: {}, "+template),
		"": workloadText("v1", "Service", "web", "ports: [{port: 80}]"),
	} {
		_, answers, stderr := simulated(t, document)
		if !strings.HasPrefix(stderr, want) || strings.Count(stderr, "\n") != min(len(want), 1) ||
			summarize(answers) == "" {
			t.Errorf("want stderr %q, got:\n%s%+v", want, stderr, answers)
		}
	}
	for want, document := range map[string]string{
		"netdra supports only apiVersion apps/v1": workloadText("apps/v1beta1", "Deployment", "web", template),
		"cannot simulate Deployment default/web: it has 1000000 pods, but at most 1000 can": workloadText(
			"apps/v1", "Deployment", "web", "replicas: 1000000, selector: {}, "+template),
	} {
		if code, stdout, stderr := runNetdra(t, eightFunctions+"---\n"+document, "simulate", "-f",
			"-"); code != exit.Refused || !strings.Contains(stderr, want) {
			t.Errorf("exit status %d, want %q:\n%s%s", code, want, stdout, stderr)
		}
	}
}

// An exclusive device belongs to one pod, even if several pods reference its claim: the driver refuses all but the
// first.
func TestSimulateExclusiveDeviceOfTwoPods(t *testing.T) {
	const claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: only}\n" +
		"spec: {devices: {requests: [{name: r, exactly: {deviceClassName: vf-a}}]}}"
	const allocation = "\nstatus: {allocation: {devices: {results: [{request: r, driver: DRIVER, " +
		"pool: igb-4vfs/eth0, device: eth0v0}], config: [{source: FromClass, opaque: {driver: dra.networking, " +
		"parameters: " +
		"{networkTopologyRef: {name: vf}, step: a}}}]}}RESERVED}"
	const another = ", reservedFor: [{resource: pods, name: ex0, uid: u}]"
	refusal := func(user string) string {
		return "cannot attach claim default/only: pod default/" + user + " uses its exclusive device; delete that " +
			"pod, or give each pod its own claim with a ResourceClaimTemplate"
	}
	held := func(driver, reserved string) string {
		return claim + strings.NewReplacer("DRIVER", driver, "RESERVED", reserved).Replace(allocation)
	}
	pod := func(name string) string {
		return workloadText("v1", "Pod", name, "containers: [], resourceClaims: [{name: net, resourceClaimName: only}]")
	}
	deployment := workloadText("apps/v1", "Deployment", "web", "replicas: 3, selector: {}, template: {spec: "+
		"{containers: [], resourceClaims: [{name: net, resourceClaimName: only}]}}")
	for name, test := range map[string]struct {
		documents     []string
		want, refused string
	}{
		"pods":       {[]string{claim, pod("ex1"), pod("ex2")}, "ex1, ex2!", refusal("ex1")},
		"deployment": {[]string{claim, deployment}, "web-1, web-2!, web-3! as web-2", refusal("web-1")},
		"allocated":  {[]string{held("dra.networking", ""), pod("ex1"), pod("ex2")}, "ex1, ex2!", refusal("ex1")},
		"in use":     {[]string{held("dra.networking", another), pod("ex1")}, "ex1!", refusal("ex0")},
		"in use by the pod": {[]string{held("dra.networking", another), pod("ex0"), pod("ex1")}, "ex0, ex1!",
			refusal("ex0")},
		"a device of another driver": {[]string{held("gpu.example.com", another), pod("ex1"), pod("ex2")}, "ex1, ex2",
			""},
	} {
		t.Run(name, func(t *testing.T) {
			_, answers, stderr := simulated(t, test.documents...)
			var refused []string
			for i := range answers {
				refused = append(refused, answers[i].Refused...)
			}
			// The template, which is not referenced by any pod in these tests, is also simulated.
			got := strings.TrimPrefix(summarize(answers), "a claim of template default/lan, ")
			if diff := cmp.Diff(test.want, got); diff != "" || strings.Join(refused, "\n") != test.refused {
				t.Errorf("wrong summary (-want +got):\n%s%v\n%s", diff, refused, stderr)
			}
		})
	}
}

// Objects without a namespace get the namespace from the flag. Other objects keep their namespaces.
func TestSimulateNamespace(t *testing.T) {
	run := func(stdin string, arguments ...string) (int, string) {
		code, stdout, stderr := runNetdra(t, stdin, append([]string{"simulate", "-f", "-", "--machines",
			"../../discovery/testdata/igb-4vfs"}, arguments...)...)
		return code, stdout + stderr
	}
	restricted := strings.Replace(eightFunctions, "spec: {steps:", "spec: {allowedNamespaces: {matchLabels: "+
		"{kubernetes.io/metadata.name: ai}}, steps:", 1) + "---\n" + workloadText("apps/v1", "Deployment", "web",
		"selector: {}, template: "+workloadPod) + "\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ai}\n"
	if code, output := run(restricted, "-n", "ai"); code != exit.OK || !strings.Contains(output, "pod ai/web-1 fits") {
		t.Errorf("exit status %d:\n%s", code, output)
	}
	if _, output := run(restricted); !strings.Contains(output, "pod default/web-1 fits") ||
		!strings.Contains(output, "may not be used in namespace default") {
		t.Errorf("without -n, want a refusal, got:\n%s", output)
	}
	named := strings.NewReplacer("{name: lan}", "{name: lan, namespace: ai}", "{name: web}",
		"{name: web, namespace: ai}").Replace(restricted)
	if code, output := run(named, "-n", "else"); code != exit.OK || !strings.Contains(output, "pod ai/web-1 fits") {
		t.Errorf("exit status %d:\n%s", code, output)
	}
	for _, flag := range []string{"--context", "--kubeconfig"} {
		if code, output := run(restricted, flag, "x"); code != exit.Refused ||
			!strings.Contains(output, "they select a cluster, but none is queried; add --cluster") {
			t.Errorf("%s without --cluster: exit status %d:\n%s", flag, code, output)
		}
	}
}

// Simulated claims do not exist, so the output does not suggest releasing them. Claims that exist are named.
func TestSimulateWorkloadInItsOwnWay(t *testing.T) {
	const held = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: held}\nspec: {devices: " +
		"{requests: [{name: r, exactly: {deviceClassName: vf-a}}]}}\nstatus: {allocation: {devices: {results: " +
		"[{request: r, driver: dra.networking, pool: igb-4vfs/eth0, device: eth0v0}]}}}\n---\n"
	var many strings.Builder // takes all functions but one; the pod needs two
	for _, function := range []string{"eth0v0", "eth0v1", "eth0v2", "eth0v3", "eth1v0", "eth1v1", "eth1v2"} {
		many.WriteString(strings.NewReplacer("name: held", "name: held-"+function, "eth0v0", function,
			"igb-4vfs/eth0", "igb-4vfs/"+function[:4]).Replace(held))
	}
	deployment := workloadText("apps/v1", "Deployment", "web", "replicas: 5, selector: {}, template: "+workloadPod)
	big := "\n---\n" + workloadText("v1", "Pod", "big", "containers: [], resourceClaims: [{name: net, "+
		"resourceClaimTemplateName: all}]") + "\n---\n" + strings.NewReplacer("{name: lan}", "{name: all}",
		"count: 2", "count: 8").Replace(eightFunctions[strings.LastIndex(eightFunctions, "---"):])
	for name, test := range map[string]struct {
		documents string
		want      []string
		not       string
	}{
		"only its own": {deployment, []string{"✗ pod default/web-5 does not fit",
			"    Taken in this simulation by pod default/web-4\n4 of 5 pods fit\n"}, "released"},
		"others do not hinder": {held + deployment, []string{"✗ pod default/web-4 does not fit",
			"    Taken in this simulation by pod default/web-3\n✗ pod default/web-5 does not fit, as pod default/web-4",
			"\n3 of 5 pods fit\n"}, "released"},
		"of others, too": {held + deployment + big, []string{
			"    Taken in this simulation by pod default/web-1, pod default/web-2, pod default/web-3\n" +
				"    It fits without them when this claim is released: default/held\n", "\n3 of 6 pods fit\n"},
			"It fits when"},
		"of others": {many.String() + strings.Replace(deployment, "replicas: 5", "replicas: 1", 1), []string{
			"    claim default/held-eth1v2 holds device eth1v2 of pool igb-4vfs/eth1\n" +
				"    It fits when this claim is released: default/held-eth1v2\n"}, "these claims are released"},
		"one pod": {strings.Replace(deployment, "replicas: 5", "replicas: 1", 1),
			[]string{"✓ pod default/web-1 fits"}, "pods fit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, stdout, stderr := runNetdra(t, eightFunctions+"---\n"+test.documents, "simulate", "-f", "-",
				"--machines", "../../discovery/testdata/igb-4vfs")
			for _, want := range test.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("output lacks %q:\n%s%s", want, stdout, stderr)
				}
			}
			if strings.Contains(stdout, test.not) {
				t.Errorf("output contains %q:\n%s", test.not, stdout)
			}
		})
	}
}

// On a node with a single device, the message is in the singular.
func TestSimulateOnlyDevice(t *testing.T) {
	only := strings.Replace(eightFunctions, `"vf"'`, `"vf" && device.attributes["dra.networking"].ifName == "eth0v0"'`,
		1) + "---\n" + workloadText("v1", "Pod", "web", strings.TrimSuffix(strings.TrimPrefix(workloadPod,
		"{spec: {"), "}}"))
	for documents, want := range map[string]string{
		strings.Replace(only, `cel: "true"`, `cel: 'device.attributes["dra.networking"].pfName == "ens9"'`, 1): "the " +
			"node's only device is not of that class: its selector is false for the only device with CNI plugin sriov",
		strings.Replace(only, "count: 2", `selectors: [{cel: {expression: "false"}}]`, 1): "the request's own " +
			"selectors are false for the only device of that class",
	} {
		_, stdout, stderr := runNetdra(t, documents, "simulate", "-f", "-", "--machines",
			"../../discovery/testdata/igb-4vfs")
		if !strings.Contains(stdout, want) {
			t.Errorf("output lacks %q:\n%s%s", want, stdout, stderr)
		}
	}
}
