// Package nad has the definition of NetworkAttachmentDefinitions for clusters without the programs that bring it, and
// what tests with Multus have in common.
//
// The rule of this package: it has only what their readers need, and makes texts only.
package nad

import "fmt"

// Status is the annotation in which Multus reports the attachments of a pod.
const Status = "k8s.v1.cni.cncf.io/network-status"

// Definition is the CustomResourceDefinition, as far as Multus, OVN-Kubernetes and this driver read its objects.
const Definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names:
    plural: network-attachment-definitions
    singular: network-attachment-definition
    kind: NetworkAttachmentDefinition
    shortNames: [net-attach-def]
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {config: {type: string}}}}}}
`

// Network returns a NetworkAttachmentDefinition in a namespace, or without a namespace if that is empty. Resource is
// the name of the resource that Multus requests from the kubelet, if any. Config must not contain the quotation mark of
// YAML.
func Network(namespace, name, resource, config string) string {
	metadata := "name: " + name
	if namespace != "" {
		metadata += ", namespace: " + namespace
	}
	if resource != "" {
		metadata += fmt.Sprintf(", annotations: {k8s.v1.cni.cncf.io/resourceName: %s}", resource)
	}
	return fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {%s}
spec:
  config: '%s'
`, metadata, config)
}

// Multus is the configuration of Multus as the network of a node whose pods have a network of their own. It is
// a delegate: of a list that clusterNetwork names, Multus 4.2.3 forgets what DEL needs.
func Multus(kubeconfig, log string, pods []byte) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": %q, "delegates": [%s],
		"logLevel": "verbose", "logFile": %q}`, kubeconfig, pods, log)
}
