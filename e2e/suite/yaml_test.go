package suite

import (
	"fmt"
	"strings"
)

// expose returns a policy that offers the named links for one CNI plugin.
func expose(name, cni string, shared bool, links ...string) string {
	quoted := make([]string, len(links))
	for i, link := range links {
		quoted[i] = fmt.Sprintf("%q", link)
	}
	capacity := ""
	if shared {
		capacity = `
    capacity: {shares: {value: "64", requestPolicy: {default: "1"}}}`
	}
	return fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: %s}
spec:
  selector: {cel: 'device.attributes["dra.networking"].ifName in [%s]'}
  exposure:
    allowMultipleAllocations: %v%s
    supportedCNIPlugins: [{name: %s, exclusive: %v}]
`, name, strings.Join(quoted, ", "), shared, capacity, cni, !shared)
}

// topology returns a NetworkTopology with the given steps in YAML.
func topology(name, steps string) string {
	return fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: %s}
spec:
  steps:%s
`, name, strings.ReplaceAll("\n"+strings.TrimSpace(steps), "\n", "\n  "))
}

// claimTemplate returns a template for a claim that requests one device from each class.
func claimTemplate(name string, classes ...string) string {
	requests := ""
	for i, class := range classes {
		requests += fmt.Sprintf("\n      - {name: r%d, exactly: {deviceClassName: %s}}", i, class)
	}
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %s}
spec:
  spec:
    devices:
      requests:%s
`, name, requests)
}

// pod returns a pod whose container sleeps. The pod has a claim from the template, unless template is empty.
func pod(name, template string) string {
	claims, use := "", ""
	if template != "" {
		claims = fmt.Sprintf("\n  resourceClaims: [{name: net, resourceClaimTemplateName: %s}]", template)
		use = "\n    resources: {claims: [{name: net}]}"
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false%s
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: IfNotPresent
    command: [sleep, "86400"]%s
`, name, claims, use)
}

func documents(parts ...string) string { return strings.Join(parts, "\n---\n") }
