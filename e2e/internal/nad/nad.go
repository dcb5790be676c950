// Package nad contains the CustomResourceDefinition for NetworkAttachmentDefinitions, for clusters in which no other
// program installs it, and helpers shared by tests that use Multus.
//
// Invariant: it only generates text, and the definition contains only the fields that its consumers
// need.
package nad

import "fmt"

// Status is the annotation in which Multus reports a pod's attachments.
const Status = "k8s.v1.cni.cncf.io/network-status"

// Definition is the CustomResourceDefinition, reduced to the fields that Multus, OVN-Kubernetes and this driver read.
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

// Network returns a NetworkAttachmentDefinition. If namespace is empty, the object has no namespace. resource is the
// name of the extended resource whose devices Multus passes to the plugin; it may be empty. config must not contain
// single quotation marks.
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

// Multus returns the CNI configuration that makes Multus the network plugin on a node that already has a pod network.
// The existing network becomes a delegate, because Multus 4.2.3 loses the data required for DEL if clusterNetwork
// refers to a plugin list.
func Multus(kubeconfig, log string, pods []byte) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": %q, "delegates": [%s],
		"logLevel": "verbose", "logFile": %q}`, kubeconfig, pods, log)
}
