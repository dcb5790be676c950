package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestRBACGrantsNoMore lists each service account's permissions, so that granting a new permission requires a change to
// this test.
func TestRBACGrantsNoMore(t *testing.T) {
	tests := map[string][]string{
		"node.yaml": {
			"addressblocks,cnipluginschemas,deviceexposurepolicies,networktopologies.networking.dra.io: get list " +
				"watch",
			"events.,events.events.k8s.io: create patch",
			"namespaces,nodes,pods.: get list watch",
			"network-attachment-definitions.k8s.cni.cncf.io: get",
			"resourceclaims.resource.k8s.io: get",
			"resourceclaims/driver.resource.k8s.io dra.networking: associated-node:patch associated-node:update",
			"resourceclaims/status.resource.k8s.io: patch update",
			"resourceslices.resource.k8s.io: create delete get list patch update watch",
		},
		"controller.yaml": {
			"addressblocks,addressranges,cnipluginschemas,deviceexposurepolicies,networktopologies.networking.dra.io: " +
				"get list watch",
			"addressblocks.networking.dra.io: create delete update",
			"addressblocks/status,addressranges/status,cnipluginschemas/status,deviceexposurepolicies/status," +
				"networktopologies/status.networking.dra.io: update",
			"addressranges.networking.dra.io: patch",
			"deviceclasses.resource.k8s.io: create delete get list patch watch",
			"events.,events.events.k8s.io: create patch",
			"networktopologies/finalizers.networking.dra.io: update",
			"nodes.: get list watch",
			"own namespace: leases.coordination.k8s.io dra-network-controller: get update",
			"own namespace: leases.coordination.k8s.io: create",
			"own namespace: secrets. dra-network-controller-webhook: get update",
			"podgroups.scheduling.k8s.io: get",
			"resourceclaims.resource.k8s.io: get list watch",
			"resourceslices.resource.k8s.io: get list watch",
			"validatingwebhookconfigurations.admissionregistration.k8s.io dra-network-controller: get patch",
		},
	}
	for file, want := range tests {
		t.Run(file, func(t *testing.T) {
			objects := load(t, file)
			var got []string
			for _, role := range all[*rbacv1.ClusterRole](objects) {
				got = append(got, rules("", role.Rules)...)
			}
			for _, role := range all[*rbacv1.Role](objects) {
				got = append(got, rules("own namespace: ", role.Rules)...)
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("wrong permissions (-want +got):\n%s", diff)
			}
			if strings.Contains(strings.Join(got, "\n"), "*") {
				t.Error("a permission contains a wildcard")
			}
			bound(t, objects)
		})
	}
}

// rules formats each rule as "resources.group names: verbs".
func rules(prefix string, rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		var groups []string
		for _, group := range rule.APIGroups {
			groups = append(groups, strings.Join(slices.Sorted(slices.Values(rule.Resources)), ",")+"."+group)
		}
		line := prefix + strings.Join(groups, ",")
		if len(rule.ResourceNames) > 0 {
			line += " " + strings.Join(rule.ResourceNames, ",")
		}
		lines = append(lines, line+": "+strings.Join(slices.Sorted(slices.Values(rule.Verbs)), " "))
	}
	return lines
}

// TestRolesForPeople lists the roles that administrators can bind to users. They are not bound in the manifests.
func TestRolesForPeople(t *testing.T) {
	objects := load(t, "roles.yaml")
	var got []string
	for _, role := range all[*rbacv1.ClusterRole](objects) {
		got = append(got, rules(role.Name+": ", role.Rules)...)
	}
	for _, role := range all[*rbacv1.Role](objects) {
		if role.Namespace != "dra-network" {
			t.Errorf("Role %s is in namespace %s, want dra-network", role.Name, role.Namespace)
		}
		got = append(got, rules("own namespace: "+role.Name+": ", role.Rules)...)
	}
	want := []string{
		"dra-network-capacity: addressranges.networking.dra.io: list",
		"dra-network-capacity: deviceclasses,devicetaintrules,resourceclaims,resourceslices.resource.k8s.io: list",
		"dra-network-capacity: networktopologies.networking.dra.io: list",
		"dra-network-capacity: nodes.: list",
		"dra-network-netdra: pods.: get",
		"dra-network-netdra: resourceclaims.resource.k8s.io: get",
		"dra-network-view: networktopologies.networking.dra.io: get list watch",
		"dra-network-view: deviceclasses,resourceslices.resource.k8s.io: get list watch",
		"own namespace: dra-network-netdra: pods.: get list",
		"own namespace: dra-network-netdra: pods/exec.: create get",
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong permissions (-want +got):\n%s", diff)
	}
	if len(all[*rbacv1.ClusterRoleBinding](objects))+len(all[*rbacv1.RoleBinding](objects)) != 0 {
		t.Error("the manifests contain role bindings")
	}
}

// bound checks that every role in a file is bound only to the service account in that file.
func bound(t *testing.T, objects []runtime.Object) {
	t.Helper()
	account := all[*corev1.ServiceAccount](objects)[0]
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
	for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
		if diff := cmp.Diff(want, binding.Subjects); diff != "" || binding.RoleRef.Name != account.Name {
			t.Errorf("ClusterRoleBinding for %s is wrong (-want +got):\n%s", binding.RoleRef.Name, diff)
		}
	}
	for _, binding := range all[*rbacv1.RoleBinding](objects) {
		if diff := cmp.Diff(want, binding.Subjects); diff != "" || binding.RoleRef.Name != account.Name ||
			binding.Namespace != account.Namespace {
			t.Errorf("RoleBinding for %s is wrong (-want +got):\n%s", binding.RoleRef.Name, diff)
		}
	}
}

func TestNodeDriver(t *testing.T) {
	set := find[*appsv1.DaemonSet](t, "node.yaml")
	pod := set.Spec.Template.Spec
	container := pod.Containers[0]
	update := set.Spec.UpdateStrategy.RollingUpdate
	if update.MaxSurge.IntValue() != 0 || update.MaxUnavailable.IntValue() != 1 {
		t.Errorf("an update must stop the old driver before it starts the new one: %+v", update)
	}
	if !pod.HostNetwork || pod.PriorityClassName != "system-node-critical" ||
		*pod.TerminationGracePeriodSeconds != 60 ||
		!cmp.Equal(pod.Tolerations, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}) {
		t.Error("the driver must use the host network, run on every node, and have 60 s to shut down")
	}
	if security := container.SecurityContext; !*security.Privileged || !*security.ReadOnlyRootFilesystem {
		t.Errorf("wrong security context: %+v", security)
	}
	for name, probe := range map[string]*corev1.Probe{
		"/healthz at start": container.StartupProbe, "/healthz": container.LivenessProbe,
		"/readyz": container.ReadinessProbe,
	} {
		path, _, _ := strings.Cut(name, " ")
		if get := probe.HTTPGet; get.Host != "127.0.0.1" || get.Port.IntValue() != 9680 || get.Path != path {
			t.Errorf("probe %s sends the wrong request: %+v", name, get)
		}
	}
	// Pods on the node have to wait if the driver hangs, so a hanging driver must be restarted soon. A driver that is
	// merely slow must not be killed in the middle of an attachment.
	live := container.LivenessProbe
	if max(live.PeriodSeconds, live.TimeoutSeconds)*live.FailureThreshold > 25 || live.TimeoutSeconds < 8 ||
		live.TerminationGracePeriodSeconds == nil || *live.TerminationGracePeriodSeconds > 5 {
		t.Errorf("the liveness probe takes too long to stop a hung driver, or times out too early: %+v", live)
	}
	want := []string{
		"/opt/cni/bin Directory read-only",
		"/proc Directory read-only",
		"/run/cni DirectoryOrCreate",
		"/var/lib/cni DirectoryOrCreate",
		"/var/lib/dra-network/attributes.d DirectoryOrCreate read-only",
		"/var/lib/kubelet/plugins/dra.networking DirectoryOrCreate",
		"/var/lib/kubelet/plugins_registry Directory",
		"/var/log/dra-network DirectoryOrCreate",
		"/var/run/cdi DirectoryOrCreate",
		"/var/run/k8s.cni.cncf.io/devinfo/dp DirectoryOrCreate",
		"/var/run/netns DirectoryOrCreate Bidirectional",
		"/var/run/nri Directory", // never the socket itself, because restarting the runtime replaces it
		"/var/run/ovn-kubernetes DirectoryOrCreate",
	}
	if diff := cmp.Diff(want, hostPaths(t, pod)); diff != "" {
		t.Errorf("wrong host paths (-want +got):\n%s", diff)
	}
}

// hostPaths returns the host paths that a pod mounts. Except for /proc, each must be mounted at the same path as on the
// host; the container has a /proc of its own.
func hostPaths(t *testing.T, pod corev1.PodSpec) []string {
	t.Helper()
	mounts := map[string]corev1.VolumeMount{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		mounts[mount.Name] = mount
	}
	var paths []string
	for _, volume := range pod.Volumes {
		mount, mounted := mounts[volume.Name]
		delete(mounts, volume.Name)
		if !mounted {
			t.Errorf("volume %s is not mounted", volume.Name)
		}
		if volume.HostPath == nil {
			continue
		}
		if mount.MountPath != volume.HostPath.Path && mount.MountPath != "/host"+volume.HostPath.Path {
			t.Errorf("host path %s is mounted at %s", volume.HostPath.Path, mount.MountPath)
		}
		path := volume.HostPath.Path + " " + string(*volume.HostPath.Type)
		if mount.ReadOnly {
			path += " read-only"
		}
		if mount.MountPropagation != nil {
			path += " " + string(*mount.MountPropagation)
		}
		paths = append(paths, path)
	}
	for name := range mounts {
		t.Errorf("mount %s has no volume", name)
	}
	slices.Sort(paths)
	return paths
}

func TestController(t *testing.T) {
	pod := find[*appsv1.Deployment](t, "controller.yaml").Spec.Template.Spec
	security := pod.Containers[0].SecurityContext
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Volumes) > 0 {
		t.Error("the controller must not use host namespaces or volumes")
	}
	if !*pod.SecurityContext.RunAsNonRoot ||
		pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		*security.AllowPrivilegeEscalation || !*security.ReadOnlyRootFilesystem || security.Privileged != nil ||
		!cmp.Equal(security.Capabilities, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}) {
		t.Errorf("wrong security context: %+v, %+v", pod.SecurityContext, security)
	}
}

func TestWorkloadsUseTheirAccountAndImage(t *testing.T) {
	node := find[*appsv1.DaemonSet](t, "node.yaml")
	controller := find[*appsv1.Deployment](t, "controller.yaml")
	namespace := find[*corev1.Namespace](t, "namespace.yaml").Name
	for name, got := range map[string]struct {
		namespace string
		labels    map[string]string
		pod       corev1.PodSpec
	}{
		"dra-network-driver": {node.Namespace, node.Spec.Selector.MatchLabels, node.Spec.Template.Spec},
		"dra-network-controller": {controller.Namespace, controller.Spec.Selector.MatchLabels,
			controller.Spec.Template.Spec},
	} {
		container := got.pod.Containers[0]
		if got.namespace != namespace || got.labels["app.kubernetes.io/name"] != name ||
			got.pod.ServiceAccountName != name ||
			container.Image != "localhost/"+name+":dev" || container.ImagePullPolicy != corev1.PullIfNotPresent {
			t.Errorf("%s has the wrong namespace, name, service account or image: %+v", name, got)
		}
	}
}
