package rdma

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

// told returns the environment variables for net1 in a pod's container, keyed by the part of their names after
// DRA_NETWORK_NET1_.
func (c *cluster) told(pod string) map[string]string {
	c.Helper()
	output, err := c.execute(context.Background(), pod, "/usr/bin/env")
	c.must(err)
	told := map[string]string{}
	for line := range strings.Lines(output) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if name, ours := strings.CutPrefix(name, "DRA_NETWORK_NET1_"); ours {
			told[name] = value
		}
	}
	return told
}

// inStatus waits until the status of a pod's claim reports an RDMA device, and returns the device.
func (c *cluster) inStatus(pod string) (device cnichain.VerbsDevice) {
	c.Helper()
	c.until("RDMA device in the status of the claim of pod "+pod, func(ctx context.Context) error {
		claims := &resourceapi.ResourceClaimList{}
		if err := c.Objects.List(ctx, claims, client.InNamespace(c.Namespace)); err != nil {
			return err
		}
		for i := range claims.Items {
			owner := metav1.GetControllerOf(&claims.Items[i])
			devices := claims.Items[i].Status.Devices
			if owner == nil || owner.Name != pod || len(devices) != 1 || devices[0].Data == nil {
				continue
			}
			var data struct {
				RDMA        []cnichain.VerbsDevice `json:"rdma"`
				RDMAUnknown string                 `json:"rdmaUnknown"`
			}
			if err := json.Unmarshal(devices[0].Data.Raw, &data); err != nil || len(data.RDMA) != 1 ||
				data.RDMAUnknown != "" {
				return fmt.Errorf("the data in the status is %s: %w", devices[0].Data.Raw, err)
			}
			device = data.RDMA[0]
			return nil
		}
		return errors.New("there is none")
	})
	return device
}

// Applications in pods can exchange data using only the information in their environment. The status of the claim and
// the metadata file in the container contain the same information.
func TestClusterPodsReadGIDs(t *testing.T) {
	c := newCluster(t, "")
	c.needsLab()
	c.rdmaFunctions(2)
	before := c.machine().devices()
	c.expose()
	c.topology("rdma", "netdev", ofFunctions, "")
	left := c.pod("left", "rdma")
	c.pod("right", "rdma")
	for _, pod := range []string{"left", "right"} {
		told, device := c.told(pod), c.inStatus(pod)
		gid := device.GIDs[0]
		if told["RDMA_DEVICE"] != device.Name || told["VERBS_DEVICE"] != device.Verbs || told["GID"] != gid.GID ||
			told["GID_INDEX"] != fmt.Sprint(gid.Index) || told["GID_TYPE"] != "RoCE v2" || gid.Interface != "net1" {
			t.Errorf("pod %s has variables %v, which do not match the device in its claim: %+v", pod, told, device)
		}
		output, err := c.execute(context.Background(), pod, "/usr/bin/cat",
			"/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/net/nic/dra.networking-metadata.json")
		c.must(err)
		output = strings.Join(strings.Fields(output), "")
		for _, want := range []string{`"dra.networking/gidIndex":{"int":` + told["GID_INDEX"] + `}`,
			`"dra.networking/verbsDevice":{"string":"` + told["VERBS_DEVICE"] + `"}`} {
			if strings.Count(output, want) != 2 { // once in each API version
				t.Errorf("the file in pod %s lacks %s:\n%s", pod, want, output)
			}
		}
	}
	address := left.addressOfPod()
	for _, command := range []string{
		`exec /usr/bin/ibv_rc_pingpong -d "$DRA_NETWORK_NET1_RDMA_DEVICE" -i "$DRA_NETWORK_NET1_RDMA_PORT" ` +
			`-g "$DRA_NETWORK_NET1_GID_INDEX" -n 20 "$@"`,
		`exec /usr/bin/ib_write_bw -d "$DRA_NETWORK_NET1_RDMA_DEVICE" -i "$DRA_NETWORK_NET1_RDMA_PORT" ` +
			`-x "$DRA_NETWORK_NET1_GID_INDEX" -n 20 -s 4096 -F "$@"`,
	} {
		shell := []string{"/usr/bin/bash", "-c", command, "bash"}
		c.talks("left", "right", shell, append(shell, address))
	}
	c.goes("left", "right")
	c.onMachine(before...)
}
