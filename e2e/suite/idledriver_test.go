package suite

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-networking/dra-network-driver/e2e/internal/idledriver"
)

// startIdleDriver creates the idle driver's class, and runs the idle driver with the given number of devices until the
// end of the test.
func (e *env) startIdleDriver(devices int) {
	e.Helper()
	stop, err := idledriver.Start(e.Context(), e.cluster, e.client, devices)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := stop(); err != nil {
			e.Error(err)
		}
	})
	e.eventually("the idle driver's slices are published", func(ctx context.Context) (bool, error) {
		slices, err := e.client.ResourceV1().ResourceSlices().List(ctx,
			metav1.ListOptions{FieldSelector: "spec.driver=" + idledriver.Name})
		return err == nil && len(slices.Items) > 0, err
	})
}
