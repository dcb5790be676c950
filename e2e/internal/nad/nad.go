// Package nad has the definition of NetworkAttachmentDefinitions for clusters without the programs that bring it.
//
// The rule of this package: it has only what their readers need.
package nad

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
