package sriov

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apply applies documents of YAML, and deletes them at the end of the test.
func (c *cluster) apply(documents string) {
	c.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			c.Fatalf("%v:\n%s", err, documents)
		}
		if object.Object == nil {
			continue
		}
		if kind := object.GetKind(); kind == "Pod" || kind == "ResourceClaimTemplate" {
			object.SetNamespace(c.namespace)
		}
		c.must(c.objects.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner("test"), client.ForceOwnership))
		c.Cleanup(func() {
			if err := client.IgnoreNotFound(c.objects.Delete(context.Background(), object)); err != nil {
				c.Error(err)
			}
		})
	}
}

// topology makes a topology and a claim template, both called so, with a request for each class.
func (c *cluster) topology(name, steps string, roots ...string) {
	c.Helper()
	requests := ""
	for i, root := range roots {
		requests += fmt.Sprintf("\n      - {name: r%d, exactly: {deviceClassName: %s-%s}}", i, name, root)
	}
	c.apply(fmt.Sprintf(`
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
		c.until("DeviceClass of "+name, func(ctx context.Context) error {
			_, err := c.client.ResourceV1().DeviceClasses().Get(ctx, name+"-"+root, metav1.GetOptions{})
			return err
		})
	}
}

// create makes pods, each with a claim from a template.
func (c *cluster) create(template string, names ...string) {
	c.Helper()
	c.createWith("exec sleep 86400", template, names...)
}

// createWith is create for pods whose container runs a shell's command.
func (c *cluster) createWith(script, template string, names ...string) {
	c.Helper()
	for _, name := range names {
		c.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  resourceClaims: [{name: net, resourceClaimTemplateName: %[2]s}]
  containers:
  - name: main
    image: localhost/toolbox:e2e
    imagePullPolicy: Never
    command: [sh, -c, %[5]q]
    env: [{name: %[3]s, value: %[4]s/%[1]s}]
    resources: {claims: [{name: net}]}
`, name, template, observed, c.namespace, script))
	}
}

// ready waits until pods are Ready.
func (c *cluster) ready(names ...string) {
	c.Helper()
	for _, name := range names {
		c.until("pod "+name+" that is Ready", func(ctx context.Context) error { return c.isReady(ctx, name) })
	}
}

// isReady says why a pod is not Ready.
func (c *cluster) isReady(ctx context.Context, name string) error {
	pod, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	}) {
		return fmt.Errorf("it is %s", pod.Status.Phase)
	}
	return nil
}

// waits waits until the scheduler has said that it finds no device for a pod.
func (c *cluster) waits(name string) {
	c.Helper()
	c.until("pod "+name+" that has to wait", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != "" {
			c.Fatalf("pod %s was scheduled", name)
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled &&
				strings.Contains(condition.Message, "cannot allocate all claims") {
				return nil
			}
		}
		return errStill
	})
}

// delete begins to delete pods; gone waits until they are.
func (c *cluster) delete(names ...string) {
	c.Helper()
	for _, name := range names {
		c.must(c.client.CoreV1().Pods(c.namespace).Delete(context.Background(), name, metav1.DeleteOptions{}))
	}
}

func (c *cluster) gone(names ...string) {
	c.Helper()
	for _, name := range names {
		c.until("end of pod "+name, func(ctx context.Context) error {
			_, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errStill, err)
		})
	}
}

// removeAll deletes all pods of the test, and waits until they are gone.
func (c *cluster) removeAll() {
	c.Helper()
	pods, err := c.client.CoreV1().Pods(c.namespace).List(context.Background(), metav1.ListOptions{})
	c.must(err)
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
		if err := c.client.CoreV1().Pods(c.namespace).Delete(context.Background(), pods.Items[i].Name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			c.Error(err)
		}
	}
	c.gone(names...)
}
