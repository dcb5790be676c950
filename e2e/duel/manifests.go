package duel

import (
	"fmt"
	"strings"
)

// Prefixes for the names of the node's links, followed by a number: links with linkPrefix are moved into pods, and
// links with sharedPrefix are the parents of macvlans.
const (
	linkPrefix   = "du"
	sharedPrefix = "dm"
	// devices is the number of links available to sequential pods, and crowd is the number of concurrent pods.
	devices = 10
	crowd   = 100
)

// ourPolicies contains the policies that offer the links.
const ourPolicies = `
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: duel-links}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifName.startsWith("` + linkPrefix + `")'}
  exposure:
    allowMultipleAllocations: false
    supportedCNIPlugins: [{name: netdev, exclusive: true}]
---
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: duel-shared}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifName.startsWith("` + sharedPrefix + `")'}
  exposure:
    allowMultipleAllocations: true
    capacity: {shares: {value: "200", requestPolicy: {default: "1"}}}
    supportedCNIPlugins: [{name: macvlan, exclusive: false}]
`

// ourObjects returns a topology and a claim template.
func ourObjects(kind string, n int) string {
	name := objectName(kind, n)
	steps, classes := "", make([]string, n)
	for i := range n {
		plugin, selector, config := "netdev", fmt.Sprintf(`.startsWith("%s")`, linkPrefix), ""
		if kind == macvlan {
			plugin, selector = "macvlan", fmt.Sprintf(` == "%s%d"`, sharedPrefix, i)
			config = fmt.Sprintf("\n    config: {mode: bridge, ipam: %s}", addresses(i))
		}
		steps += fmt.Sprintf(`
  - name: s%d
    type: %s
    selector: {cel: 'device.attributes["dra.networking"].ifName%s'}%s`, i, plugin, selector, config)
		classes[i] = fmt.Sprintf("%s-s%d", name, i)
	}
	return fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: %s}
spec:
  steps:%s
---%s`, name, steps, claimTemplate(name, classes...))
}

// addresses returns the IPAM configuration for a pod's i-th macvlan, which is the same for all contestants.
func addresses(i int) string {
	return fmt.Sprintf(`{"type": "host-local", "subnet": "10.18%d.0.0/22"}`, i)
}

// multusObjects returns the NetworkAttachmentDefinitions for n interfaces. Multus does not allocate links from a pool,
// so each definition names a link.
func multusObjects(kind string, n int) string {
	var list []string
	for i := range n {
		config := fmt.Sprintf(`{"cniVersion": "1.0.0", "type": "host-device", "device": "%s%d"}`, linkPrefix, i)
		if kind == macvlan {
			config = fmt.Sprintf(
				`{"cniVersion": "1.0.0", "type": "macvlan", "master": "%s%d", "mode": "bridge", "ipam": %s}`,
				sharedPrefix, i,
				addresses(i))
		}
		list = append(list, fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %s-%d, namespace: default}
spec: {config: '%s'}
`, objectName(kind, n), i, config))
	}
	return strings.Join(list, "---")
}

// claimTemplate returns a template for a claim that requests one device of each class.
func claimTemplate(name string, classes ...string) string {
	requests := ""
	for i, class := range classes {
		requests += fmt.Sprintf("\n      - {name: r%d, exactly: {deviceClassName: %s}}", i, class)
	}
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %s, namespace: default}
spec:
  spec:
    devices:
      requests:%s
`, name, requests)
}

// multusConfig is a format string for Multus' configuration, with placeholders for the path of a kubeconfig and for the
// cluster's own network configuration. If clusterNetwork refers to a network list, Multus 4.2.3 loses the data required
// for DEL.
const multusConfig = `{"cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": %q, "delegates": [%s]}
`

// dranetManifest runs dranet with the permissions that it requires. dranet offers only the duel's links, including
// veths.
const dranetManifest = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dranet}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: dranet, namespace: kube-system}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: dranet, namespace: kube-system}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dranet}
spec: {selectors: [{cel: {expression: 'device.driver == "dra.net"'}}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: dranet, namespace: kube-system}
spec:
  selector: {matchLabels: {app: dranet}}
  template:
    metadata: {labels: {app: dranet}}
    spec:
      hostNetwork: true
      serviceAccountName: dranet
      tolerations: [{operator: Exists}]
      containers:
      - name: dranet
        image: localhost/dranet:duel
        imagePullPolicy: IfNotPresent
        args:
        - --v=2
        - --hostname-override=$(NODE_NAME)
        - --cloud-provider-hint=NONE
        - --profile-provider=none
        - --filter=attributes["dra.net/ifName"].StringValue.startsWith("` + linkPrefix + `")
        env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        securityContext: {privileged: true}
        readinessProbe: {httpGet: {path: /healthz, port: 9177}, periodSeconds: 1}
        volumeMounts:
        - {name: plugins, mountPath: /var/lib/kubelet/plugins}
        - {name: registry, mountPath: /var/lib/kubelet/plugins_registry}
        - {name: nri, mountPath: /var/run/nri}
        - {name: netns, mountPath: /var/run/netns, mountPropagation: HostToContainer}
        - {name: state, mountPath: /var/run/dranet}
      volumes:
      - {name: plugins, hostPath: {path: /var/lib/kubelet/plugins}}
      - {name: registry, hostPath: {path: /var/lib/kubelet/plugins_registry}}
      - {name: nri, hostPath: {path: /var/run/nri}}
      - {name: netns, hostPath: {path: /var/run/netns}}
      - {name: state, hostPath: {path: /var/run/dranet, type: DirectoryOrCreate}}
`
