package sriov

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/kubenode"
)

// topology creates a topology, and a claim template with the same name that has one request for each root step's class.
func (c *cluster) topology(name, steps string, roots ...string) {
	c.Helper()
	requests := ""
	for i, root := range roots {
		requests += fmt.Sprintf("\n      - {name: r%d, exactly: {deviceClassName: %s-%s}}", i, name, root)
	}
	c.Apply(fmt.Sprintf(`
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {name: %[1]s}
spec:
  steps:%[2]s
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: %[1]s}
spec:
  spec:
    devices:
      requests:%[3]s
`, name, strings.ReplaceAll("\n"+strings.TrimSpace(steps), "\n", "\n  "), requests))
	for _, root := range roots {
		c.Until("DeviceClass of "+name, func(ctx context.Context) error {
			_, err := c.Client.ResourceV1().DeviceClasses().Get(ctx, name+"-"+root, metav1.GetOptions{})
			return err
		})
	}
}

// create creates pods, each with a claim from a template.
func (c *cluster) create(template string, names ...string) {
	c.Helper()
	c.createWith("exec sleep 86400", template, names...)
}

// createWith is like create, but the container in each pod runs a shell script.
func (c *cluster) createWith(script, template string, names ...string) {
	c.Helper()
	for _, name := range names {
		c.Apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, annotations: %[6]s}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  resourceClaims: [{name: net, resourceClaimTemplateName: %[2]s}]
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: Never
    command: [sh, -c, %[5]q]
    env: [{name: %[3]s, value: %[4]s}]
    resources: {claims: [{name: net}]}
`, name, template, kubenode.Observed, c.Mark(name), script, cmp.Or(c.annotations, "{}")))
	}
}
