package deploy_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// helm runs the Helm binary built by `make` and returns its output.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	binary, err := filepath.Abs("../bin/tools/helm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Skip("Helm is not built: make bin/tools/helm")
	}
	var out, problems strings.Builder
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Stdout, command.Stderr = &out, &problems
	err = command.Run()
	return out.String(), problems.String(), err
}

// template renders the chart with settings in the syntax of --set.
func template(t *testing.T, settings ...string) (string, string, error) {
	t.Helper()
	args := []string{"template", "dra-network", "chart", "--namespace", "dra-network", "--skip-tests"}
	for _, setting := range settings {
		args = append(args, "--set", setting)
	}
	return helm(t, args...)
}

// rendered renders the chart and decodes the result strictly. The Prometheus operator's kinds are skipped, because
// their types are not part of Kubernetes.
func rendered(t *testing.T, settings ...string) (string, []runtime.Object) {
	t.Helper()
	text, problems, err := template(t, settings...)
	if err != nil {
		t.Fatalf("%v: %v: %s", settings, err, problems)
	}
	var known []string
	for document := range strings.SplitSeq(text, "\n---\n") {
		if !strings.Contains(document, "apiVersion: monitoring.coreos.com/") {
			known = append(known, document)
		}
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(known, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return text, load(t, file)
}

// TestManifestsAreTheChart checks that the manifests in this directory contain the same objects that Helm installs.
func TestManifestsAreTheChart(t *testing.T) {
	_, fromChart := rendered(t, "namespace.create=true")
	var applied []runtime.Object
	for _, file := range files(t, "*.yaml") {
		applied = append(applied, load(t, file)...)
	}
	names := func(objects []runtime.Object) map[string]runtime.Object {
		named := map[string]runtime.Object{}
		for _, object := range objects {
			named[object.GetObjectKind().GroupVersionKind().Kind+"/"+nameOf(t, object)] = object
		}
		return named
	}
	if diff := cmp.Diff(names(applied), names(fromChart)); diff != "" {
		t.Errorf("manifests and chart differ, run `make generate` (-manifests +chart):\n%s", diff)
	}
}

func TestChartIsWithoutRemarks(t *testing.T) {
	if out, problems, err := helm(t, "lint", "--strict", "chart"); err != nil {
		t.Errorf("helm lint failed: %v\n%s%s", err, out, problems)
	}
}

// TestSettingsOfTheChart checks which lines each setting adds and removes.
func TestSettingsOfTheChart(t *testing.T) {
	tests := map[string]struct {
		set       []string
		want, not []string
	}{
		"images": {
			set: []string{"node.image.repository=registry.example/driver", "node.image.tag=v1",
				"controller.image.digest=sha256:" + strings.Repeat("a", 64), "imagePullSecrets[0].name=pull",
				"imagePullPolicy=Always"},
			want: []string{"image: registry.example/driver:v1\n", "image: localhost/dra-network-controller@sha256:aaaa",
				"- name: pull", "imagePullPolicy: Always"},
			not: []string{"IfNotPresent"},
		},
		"another namespace": {set: []string{"namespace.create=true"},
			want: []string{"kind: Namespace", "pod-security.kubernetes.io/enforce: privileged"}},
		"no namespace": {not: []string{"kind: Namespace\n"}},
		"no webhook": {set: []string{"webhook.enabled=false"},
			not: []string{"ValidatingWebhookConfiguration", "kind: Secret", "kind: Service\n", "9684",
				"validatingwebhookconfigurations", "secrets"}},
		"no policy of claims": {set: []string{"claimsPolicy.enabled=false"},
			want: []string{"dra-network-driver-own-node"}, not: []string{"dra-network-claims"}},
		"no policies": {set: []string{"defaultPolicies.enabled=false"}, not: []string{"kind: DeviceExposurePolicy"}},
		"management": {set: []string{"defaultPolicies.managementInterfaces={eno1,eno2}"},
			want: []string{`ifName in ["eno1","eno2"]`}},
		"a bridge of Open vSwitch": {set: []string{"defaultPolicies.openVSwitchBridges={br-ex}"},
			want: []string{`type == "ovs-internal" &&`,
				`!(device.attributes["dra.networking"].ifName in ["br-ex"]) ||`}},
		"an uplink of Open vSwitch": {set: []string{"defaultPolicies.openVSwitchUplinks={ens2f0}"},
			want: []string{`defaultRoute == true &&`,
				`!(device.attributes["dra.networking"].ifName in ["ens2f0"])` + "\n  action"}},
		"no files with attributes": {set: []string{"paths.attributes="},
			want: []string{"- --attribute-dir=\n"}, not: []string{"name: attributes"}},
		"no management": {set: []string{"defaultPolicies.managementInterfaces=null"},
			want: []string{"exclude-infrastructure"}, not: []string{"exclude-management"}},
		"metrics": {set: []string{"node.httpAddress=:9000", "controller.metricsAddress=:9683"},
			want: []string{"--http-address=:9000", "httpGet: {port: 9000, path: /readyz}",
				"containerPort: 9000, hostPort: 9000", "--metrics-bind-address=:9683", "{name: metrics, " +
					"containerPort: 9683}"}, not: []string{"127.0.0.1"}},
		"one address": {set: []string{"node.httpAddress=10.0.0.1:9680"},
			want: []string{`httpGet: {host: "10.0.0.1", port: 9680, path: /healthz}`}},
		"all addresses": {set: []string{"node.httpAddress=0.0.0.0:9680"},
			want: []string{"httpGet: {port: 9680, path: /healthz}"}},
		"features": {
			set: []string{"features.listAttributes=true", "features.compatibilityGroups=true"},
			// Once for the nodes and once for the controller, which must agree.
			want: []string{"- --list-attributes\n        - --compatibility-groups",
				"- --list-attributes\n        - --v=2"},
		},
		"endpoints of services": {set: []string{"features.serviceEndpoints=true"},
			want: []string{"- --service-endpoints", "resources: [services, pods]", "resources: [endpointslices]"}},
		"no endpoints of services": {not: []string{"--service-endpoints", "endpointslices"}},
		"peers": {set: []string{"webhook.from[0].ipBlock.cidr=10.0.0.0/8",
			"webhook.from[0].ipBlock.except={10.1.0.0/16}", "webhook.from[1].ipBlock.cidr=fd00::/64"},
			want: []string{"cidr: 10.0.0.0/8", "- 10.1.0.0/16", "cidr: fd00::/64"}},
		"resources": {set: []string{"node.resources.requests.cpu=1.5", "node.resources.limits.memory=1Gi",
			"controller.resources.limits=null", `node.resources.requests.example\.com/nics=2`},
			want: []string{`cpu: "1.5"`, "memory: 1Gi\n", "example.com/nics: 2\n"}, not: []string{"256Mi"}},
		"flags": {set: []string{"node.extraArgs={--kubeconfig=/etc/k}", "node.logLevel=4", "node.cniLogRetention=2h"},
			want: []string{`- "--kubeconfig=/etc/k"`, "--v=4", "--cni-log-retention=2h"}},
		"plugins": {set: []string{"cniPlugins.image=registry.example/cni:1"},
			want: []string{"image: registry.example/cni:1", "--cni-bin-dir=/opt/cni/bin,/opt/cni/dra-network",
				"{name: cni-own, emptyDir: {}}"}},
		"plugins of the image": {set: []string{"cniPlugins.included=true"},
			want: []string{"--cni-bin-dir=/opt/cni/bin,/opt/cni/included"}, not: []string{"initContainers"}},
		"placing": {set: []string{"node.nodeSelector.zone=a", "node.maxUnavailable=10%", "controller.replicas=2",
			"node.podLabels.team=net", "controller.podAnnotations.a=b"},
			want: []string{"zone: a", "maxUnavailable: 10%", "replicas: 2", "team: net", "a: b"}},
		"monitoring": {
			set: []string{"monitoring.podMonitor=true", "monitoring.alerts=true", "monitoring.dashboard=true",
				"node.httpAddress=:9680", "monitoring.labels.release=prometheus"},
			want: []string{"kind: PodMonitor", "kind: PrometheusRule", "release: prometheus",
				"alert: DRANetworkDeviceQuarantined", `grafana_dashboard: "1"`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text, _ := rendered(t, test.set...)
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("the output does not contain %q", want)
				}
			}
			for _, not := range test.not {
				if strings.Contains(text, not) {
					t.Errorf("the output contains %q", not)
				}
			}
		})
	}
}

// The OVN-Kubernetes directory is mounted only once, even if extraMounts still lists it because older charts did not
// mount it.
func TestFolderOfOVNKubernetesIsMountedOnce(t *testing.T) {
	const folder = "/var/run/ovn-kubernetes"
	for set, want := range map[string]int{
		"node.extraMounts[0].hostPath=" + folder: 1, "paths.ovnKubernetes=": 0, "namespace.create=true": 1,
	} {
		_, objects := rendered(t, set)
		pod := all[*appsv1.DaemonSet](objects)[0].Spec.Template.Spec
		mounts, volumes := 0, 0
		for _, mount := range pod.Containers[0].VolumeMounts {
			if mount.MountPath == folder {
				mounts++
			}
		}
		for _, volume := range pod.Volumes {
			if volume.HostPath != nil && volume.HostPath.Path == folder {
				volumes++
			}
		}
		if mounts != want || volumes != want {
			t.Errorf("with %s, got %d mounts and %d volumes, want %d of each", set, mounts, volumes, want)
		}
	}
}

// TestPathsOfDistributions: if a path is changed, the flags, mounts and volumes change together.
func TestPathsOfDistributions(t *testing.T) {
	_, objects := rendered(t, "paths.kubelet=/var/lib/k0s/kubelet", "paths.nri=/run/nri", "paths.cdi=/etc/cdi",
		"paths.cniBin={/usr/libexec/cni,/opt/cni/bin}",
		"paths.netns=/run/netns", "paths.log=/data/log", "paths.cniState=/data/cni", "paths.cniRun=/data/run",
		"paths.deviceInfo=/data/devinfo", "paths.attributes=/data/attributes")
	pod := all[*appsv1.DaemonSet](objects)[0].Spec.Template.Spec
	want := []string{
		"/data/attributes DirectoryOrCreate read-only",
		"/data/cni DirectoryOrCreate",
		"/data/devinfo DirectoryOrCreate",
		"/data/log DirectoryOrCreate",
		"/data/run DirectoryOrCreate",
		"/etc/cdi DirectoryOrCreate",
		"/opt/cni/bin Directory read-only",
		"/proc Directory read-only",
		"/run/netns DirectoryOrCreate Bidirectional",
		"/run/nri Directory",
		"/usr/libexec/cni Directory read-only",
		"/var/lib/k0s/kubelet/plugins/dra.networking DirectoryOrCreate",
		"/var/lib/k0s/kubelet/plugins_registry Directory",
		"/var/run/ovn-kubernetes DirectoryOrCreate",
	}
	if diff := cmp.Diff(want, hostPaths(t, pod)); diff != "" {
		t.Errorf("wrong host paths (-want +got):\n%s", diff)
	}
	for _, want := range []string{
		"--cni-bin-dir=/usr/libexec/cni,/opt/cni/bin", "--plugin-dir=/var/lib/k0s/kubelet/plugins/dra.networking",
		"--registrar-dir=/var/lib/k0s/kubelet/plugins_registry", "--nri-socket=/run/nri/nri.sock", "--cdi-dir=/etc/cdi",
		"--netns-dir=/run/netns", "--cni-log-dir=/data/log", "--device-info-dir=/data/devinfo",
		"--attribute-dir=/data/attributes",
	} {
		if !slices.Contains(pod.Containers[0].Args, want) {
			t.Errorf("the driver's arguments do not contain %s: %v", want, pod.Containers[0].Args)
		}
	}
}

// TestExtraMounts: host directories needed by CNI plugins are mounted where the plugins expect them.
func TestExtraMounts(t *testing.T) {
	_, objects := rendered(t, "node.extraMounts[0].hostPath=/etc/cni/net.d", "node.extraMounts[0].readOnly=true",
		"node.extraMounts[1].name=ovs", "node.extraMounts[1].hostPath=/run/openvswitch",
		"node.extraMounts[1].mountPath=/var/run/openvswitch",
		"node.extraMounts[1].mountPropagation=HostToContainer")
	pod := all[*appsv1.DaemonSet](objects)[0].Spec.Template.Spec
	propagation := corev1.MountPropagationHostToContainer
	mounts, volumes := pod.Containers[0].VolumeMounts, pod.Volumes
	if diff := cmp.Diff([]corev1.VolumeMount{
		{Name: "extra-0", MountPath: "/etc/cni/net.d", ReadOnly: true},
		{Name: "ovs", MountPath: "/var/run/openvswitch", MountPropagation: &propagation},
	}, mounts[len(mounts)-2:]); diff != "" {
		t.Errorf("wrong mounts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.Volume{
		{Name: "extra-0",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d"}}},
		{Name: "ovs",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/openvswitch"}}},
	}, volumes[len(volumes)-2:]); diff != "" {
		t.Errorf("wrong volumes (-want +got):\n%s", diff)
	}
}

// TestWrongSettingsAreRefused: incorrect settings are rejected, because silently ignoring them would be worse.
func TestWrongSettingsAreRefused(t *testing.T) {
	tests := map[string]struct{ set, want string }{
		"unknown":        {"node.imag=x", "'imag' not allowed"},
		"unknown at top": {"driver.image=x", "'driver' not allowed"},
		"no port": {"node.httpAddress=127.0.0.1", "'/node/httpAddress': value must be 'ADDRESS:PORT such as " +
			"127.0.0.1:9680 or [::1]:9680, or :PORT for all addresses'"},
		"port 65536": {"node.httpAddress=:65536", "/node/httpAddress"},
		"port 0":     {"controller.metricsAddress=:0", "/controller/metricsAddress"},
		"flag of a value": {"node.extraArgs={--http-address=:9000}", "/node/extraArgs/0': value must be 'a flag that " +
			"no other value of the chart sets"},
		"another such flag": {"controller.extraArgs={-v=3}", "/controller/extraArgs"},
		"name as address":   {"node.httpAddress=localhost:9680", "/node/httpAddress"},
		"relative path":     {"paths.kubelet=var/lib/kubelet", "/paths/kubelet"},
		"trailing slash":    {"paths.cdi=/etc/cdi/", "/paths/cdi"},
		"no folder":         {"paths.cniBin=null", "/paths"},
		"no section":        {"monitoring=null", "missing property 'monitoring'"},
		"no image at all":   {"controller.image=null", "'/controller': missing property 'image'"},
		"no address":        {"node.httpAddress=null", "'/node': missing property 'httpAddress'"},
		"half a digest":     {"node.image.digest=sha256:abc", "/node/image/digest"},
		"number as text":    {"node.logLevel=loud", "/node/logLevel"},
		"long interface": {"defaultPolicies.managementInterfaces={enp129s0f0np0v12}",
			"/defaultPolicies/managementInterfaces"},
		"no flag": {"node.extraArgs={kubeconfig}", "/node/extraArgs"},
		"other pods": {`node.podLabels.app\.kubernetes\.io/name=mine`,
			"invalid propertyName 'app.kubernetes.io/name'"},
		"more than all":      {"node.maxUnavailable=101%", "/node/maxUnavailable"},
		"no node is updated": {"node.maxUnavailable=0", "/node/maxUnavailable"},
		"out of reach":       {"monitoring.podMonitor=true", "Prometheus can't reach node.httpAddress"},
		"out of reach, too": {"monitoring.podMonitor=true,node.httpAddress=[::1]:9680",
			"Prometheus can't reach node.httpAddress"},
		"mount of nothing":  {"node.extraMounts[0].name=x", "missing property 'hostPath'"},
		"mount of the root": {"node.extraMounts[0].hostPath=/", "/node/extraMounts/0/hostPath"},
		"mount upwards":     {"node.extraMounts[0].hostPath=/etc/../root", "/node/extraMounts/0/hostPath"},
		"mount over /tmp": {"node.extraMounts[0].hostPath=/srv/x,node.extraMounts[0].mountPath=/tmp",
			"/node/extraMounts/0/mountPath"},
		"own volume": {"node.extraMounts[0].hostPath=/srv/x,node.extraMounts[0].name=cni-state",
			"/node/extraMounts/0/name"},
		"odd propagation": {"node.extraMounts[0].hostPath=/srv/x,node.extraMounts[0].mountPropagation=Both",
			"/node/extraMounts/0/mountPropagation"},
		"misspelled mount": {"node.extraMounts[0].hostPath=/srv/x,node.extraMounts[0].readonly=true",
			"'readonly' not allowed"},
		"nobody": {"webhook.from={}", "/webhook/from/0"},
		"peer without a prefix": {"webhook.from[0].ipBlock.cidr=10.0.0.4", "'/webhook/from/0/ipBlock/cidr': " +
			"value must be 'an address with the length of its prefix"},
		"exception without a prefix": {"webhook.from[0].ipBlock.cidr=fd00::/8,webhook.from[0].ipBlock.except={fd00::1}",
			"/webhook/from/0/ipBlock/except/0"},
		"exceptions alone": {"webhook.from[0].ipBlock.except={10.0.0.0/8}", "missing property 'cidr'"},
		"no quantity": {"node.resources.requests.cpu=abc", "'/node/resources/requests/cpu': " +
			"value must be 'a quantity"},
		"odd unit":           {"controller.resources.limits.memory=64mb", "/controller/resources/limits/memory"},
		"less than nothing":  {"controller.resources.limits.cpu=-1", "/controller/resources/limits/cpu"},
		"misspelled request": {"node.resources.request.cpu=1", "'request' not allowed"},
		"unknown resource": {"node.resources.limits.cpus=1", "'/node/resources/limits': " +
			"additional properties 'cpus' not"},
		"unknown flag": {"node.extraArgs={--cofig=/x}", "'/node/extraArgs/0': value must be 'a flag of " +
			"dra-network-driver with its value: --kubeconfig=…'"},
		"flag of the driver":   {"controller.extraArgs={--nri-socket=/x}", "/controller/extraArgs/0"},
		"flag without a value": {"controller.extraArgs={--webhook-cert-dir}", "/controller/extraArgs/0"},
		"one hyphen":           {"node.extraArgs={-kubeconfig=/x}", "/node/extraArgs/0"},
		"no address of IPv4":   {"node.httpAddress=300.0.0.1:9680", "/node/httpAddress"},
		"no address of IPv6":   {"node.httpAddress=[1:::2]:9680", "/node/httpAddress"},
		"misspelled peer":      {"webhook.from[0].ipblock.cidr=10.0.0.4/32", "'ipblock' not allowed"},
		"no image":             {"node.image.repository=a: b", "/node/image/repository"},
		"image with a tag":     {"node.image.repository=registry.example/driver:v1", "'/node/image/repository': "},
		"image in capitals":    {"controller.image.repository=registry.example/Driver", "/controller/image/repository"},
		"class in capitals":    {"node.priorityClassName=A_B", "'/node/priorityClassName': "},
		"misspelled operator": {"node.tolerations[0].operator=Exist", "'/node/tolerations/0/operator': value must be " +
			"'Exists, Equal, Lt or Gt'"},
		"misspelled effect": {"controller.tolerations[0].effect=NoExec", "'/controller/tolerations/0/effect': "},
		"no tag":            {"controller.image.tag=v1 #2", "/controller/image/tag"},
		"two images":        {"cniPlugins.image=a b", "/cniPlugins/image"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, problems, err := template(t, test.set)
			if err == nil {
				t.Fatalf("invalid setting %s is accepted:\n%s", test.set, out)
			}
			if !strings.Contains(problems, test.want) {
				t.Errorf("%s: want an error with %q, got %s", test.set, test.want, problems)
			}
			// For these keywords, Helm prints neither further details nor a description.
			for _, unclear := range []string{"does not match pattern", "'not' failed", "'anyOf' failed"} {
				if strings.Contains(problems, unclear) {
					t.Errorf("%s: write the rule as \"if\", and the expected value as \"const\" of \"else\": %s", test.set,
						problems)
				}
			}
		})
	}
}

// TestOwnNamesAreReserved: the API server would reject a second volume with the same name in the middle of an upgrade,
// and a flag that should be set through a value would not get the permissions and mounts that come with the value.
func TestOwnNamesAreReserved(t *testing.T) {
	_, objects := rendered(t, "features.listAttributes=true", "features.compatibilityGroups=true",
		"features.networkStatus=true", "features.serviceEndpoints=true", "paths.deviceInfo=/data/devinfo",
		"paths.netns=/run/netns", "paths.log=/data/log", "paths.attributes=/data/attributes", "webhook.enabled=true")
	node := all[*appsv1.DaemonSet](objects)[0].Spec.Template.Spec
	controller := all[*appsv1.Deployment](objects)[0].Spec.Template.Spec
	names := reserved(t, "node", "extraMounts", "items", "properties", "name")
	for _, volume := range node.Volumes {
		if !names.MatchString(volume.Name) {
			t.Errorf("node.extraMounts accepts the name %s, which a volume of the driver uses", volume.Name)
		}
	}
	for part, pod := range map[string]corev1.PodSpec{"node": node, "controller": controller} {
		flags := reserved(t, part, "extraArgs", "items")
		for _, flag := range pod.Containers[0].Args {
			if !flags.MatchString(flag) {
				t.Errorf("%s.extraArgs accepts %s, which the chart sets", part, flag)
			}
		}
	}
}

// reserved returns the pattern that the schema for the chart's values forbids at a path.
func reserved(t *testing.T, path ...string) *regexp.Regexp {
	t.Helper()
	place := []string{"properties", path[0], "properties", path[1]}
	return patternOf(t, append(append(place, path[2:]...), "then", "if")...)
}

// patternOf returns the pattern at a path in the schema for the chart's values.
func patternOf(t *testing.T, path ...string) *regexp.Regexp {
	t.Helper()
	text, err := os.ReadFile("chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for _, key := range path {
		inner, found := schema[key].(map[string]any)
		if !found {
			t.Fatalf("the schema of values has no %s in %v", key, path)
		}
		schema = inner
	}
	pattern, _ := schema["pattern"].(string)
	return regexp.MustCompile(pattern)
}

// TestFlagsAreKnown compares the flags in the schema with the flags of the programs, because an unknown flag would make
// the driver fail on one node after another. Every flag has a value of its own or can be passed in extraArgs.
func TestFlagsAreKnown(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)
	for part, program := range map[string]string{"node": "dra-network-driver", "controller": "dra-network-controller"} {
		text, err := os.ReadFile("../docs/reference/" + program + ".md")
		if err != nil {
			t.Fatal(err)
		}
		_, options, _ := strings.Cut(string(text), "### Options\n\n```\n")
		options, _, _ = strings.Cut(options, "```")
		items := []string{"properties", part, "properties", "extraArgs", "items", "then", "else", "if"}
		given, set := patternOf(t, items...), reserved(t, part, "extraArgs", "items")
		var want []string
		for _, flag := range listed.FindAllStringSubmatch(options, -1) {
			if flag[1] != "help" && !set.MatchString("--"+flag[1]+"=x") {
				want = append(want, flag[1])
			}
		}
		names, _, _ := strings.Cut(strings.TrimPrefix(given.String(), "^--"), "=")
		if got := strings.Split(strings.Trim(names, "()"), "|"); !cmp.Equal(got, want) {
			t.Errorf("%s.extraArgs accepts %q, but %s has %q that no value sets: correct values.schema.json", part, got,
				program, want)
		}
	}
}

// TestPatternsOfValuesAreThoseOfKubernetes checks that the schema and the API server accept the same values.
func TestPatternsOfValuesAreThoseOfKubernetes(t *testing.T) {
	cidr := patternOf(t, "definitions", "cidr", "if")
	for _, text := range []string{"10.0.0.4/32", "0.0.0.0/0", "10.0.0.4", "10.0.0.4/33", "10.0.0/8", "256.0.0.1/32",
		"010.0.0.1/32", "10.0.0.1/08", "::/0", "::1/128", "fd00::/8", "fd00::/129", "1:2:3:4:5:6:7:8/64",
		"1:2:3:4:5:6:7::/64",
		"::2:3:4:5:6:7:8/64", "1::3:4:5:6:7:8/64", "1:2:3:4:5:6:7:8:9/64", "1::2::3/64", "1:2:3/64", ":::/64",
		"fd00::12345/64",
		"1:2::7:8/100", "fd00::1%eth0/64", "", "/8", " 10.0.0.0/8"} {
		_, err := netip.ParsePrefix(text)
		if got := cidr.MatchString(text); got != (err == nil) {
			t.Errorf("network %q: schema accepts it: %t, Go parses it with error %v", text, got, err)
		}
	}
	image := patternOf(t, "properties", "node", "properties", "image", "properties", "repository", "if")
	for text, takes := range map[string]bool{"driver": true, "org/driver": true, "registry.example/driver": true,
		"registry:5000/a/b": true, "localhost:5000/driver": true, "localhost/driver": true, "10.0.0.1:5000/a/b": true,
		"[fd00::1]:5000/driver": true, "Registry.Example/a_b/c__d/e-f/g--h": true, "driver:v1": false, "": false,
		"registry.example/driver:v1": false, "Driver": false, "a..b": false, "a._b": false, "host:1:2/driver": false,
		"registry.example/": false, "/driver": false, "a b": false,
		"driver@sha256:0000000000000000000000000000000000000000000000000000000000000000": false} {
		if got := image.MatchString(text); got != takes {
			t.Errorf("image %q: schema accepts it: %t", text, got)
		}
	}
	address := patternOf(t, "properties", "node", "properties", "httpAddress", "if")
	for _, text := range []string{"127.0.0.1:9680", "[::1]:9680", "[fd00::1:2]:1", "[::ffff:127.0.0.1]:9680",
		"[::]:65535", "127.0.0.1", "[::1]", "::1:9680", "[1:::2]:9680", "300.0.0.1:9680", "127.0.0.1:65536"} {
		_, err := netip.ParseAddrPort(text)
		if got := address.MatchString(text); got != (err == nil) {
			t.Errorf("address %q: schema accepts it: %t, Go parses it with error %v", text, got, err)
		}
	}
	quantity := patternOf(t, "definitions", "quantityText")
	for _, text := range []string{"100m", "2", "0.5", "1.", ".5", "64Mi", "1e3", "1E3", "1e-3", "12E", "5k", "5K",
		"64mb", "abc",
		"", "1 Gi", "1Ki2", "+1", "--1", "1Zi", "7n", "7u", "1G", "1T", "1Pi", "1e"} {
		_, err := resource.ParseQuantity(text)
		if got := quantity.MatchString(text); got != (err == nil) {
			t.Errorf("quantity %q: schema accepts it: %t, Go parses it with error %v", text, got, err)
		}
	}
}

// TestNamesThatLookLikeSomethingElse: a namespace may be named "123", and a class "true".
func TestNamesThatLookLikeSomethingElse(t *testing.T) {
	for _, name := range []string{"123", "null", "true", "1e3"} {
		text, problems, err := helm(t, "template", "dra-network", "chart", "--namespace", name, "--skip-tests", "--set",
			"namespace.create=true", "--set-string", "node.priorityClassName="+name)
		if err != nil {
			t.Fatal(problems)
		}
		file := filepath.Join(t.TempDir(), "rendered.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		set := all[*appsv1.DaemonSet](load(t, file))[0]
		if got := set.Spec.Template.Spec.PriorityClassName; set.Namespace != name || got != name {
			t.Errorf("namespace %q, priority class %q, want %q for both", set.Namespace, got, name)
		}
	}
}

// TestCNIPluginsAreCopied runs the init container's script, which skips directories and dangling symlinks, and fails if
// the image contains no plugins.
func TestCNIPluginsAreCopied(t *testing.T) {
	_, objects := rendered(t, "cniPlugins.image=registry.example/cni")
	container := all[*appsv1.DaemonSet](objects)[0].Spec.Template.Spec.InitContainers[0]
	installed, rendered := t.TempDir(), t.TempDir()
	run := func() error {
		script := strings.ReplaceAll(container.Args[0], "/plugins", rendered)
		return exec.CommandContext(t.Context(), container.Command[0], container.Command[1], script, installed).Run()
	}
	if run() == nil {
		t.Error("the script succeeds for an image without plugins")
	}
	err := errors.Join(os.WriteFile(filepath.Join(installed, "-my plugin"), []byte("x"), 0o600),
		os.Mkdir(filepath.Join(installed, "docs"), 0o700),
		os.Symlink("-my plugin", filepath.Join(installed, "alias")), os.Symlink("nowhere",
			filepath.Join(installed, "gone")))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the container may be restarted
		if err := run(); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(rendered)
		if err != nil {
			t.Fatal(err)
		}
		var copied []string
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				t.Fatal(err)
			}
			copied = append(copied, entry.Name()+" "+info.Mode().String())
		}
		if diff := cmp.Diff([]string{"-my plugin -rwxr-xr-x", "alias -rwxr-xr-x"}, copied); diff != "" {
			t.Errorf("wrong copied files (-want +got):\n%s", diff)
		}
	}
}

func nameOf(t *testing.T, object runtime.Object) string {
	t.Helper()
	accessor, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	return accessor.GetName()
}
