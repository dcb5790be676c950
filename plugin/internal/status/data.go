package status

import (
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// Data is what a device's entry in the status of a claim has as data: what networkData has no place for. It is an
// API: names stay, and others may be added.
type Data struct {
	// RDMA are the RDMA devices that the containers have, as applications address them.
	RDMA []cnichain.VerbsDevice `json:"rdma,omitempty"`
	// RDMAUnknown is why RDMA lacks GIDs; empty if there is one for each address.
	RDMAUnknown string `json:"rdmaUnknown,omitempty"`
}

// dataOf is empty for a device without RDMA, and for what the API server would refuse: the rest of the status matters
// more. cnichain.MaxGIDs keeps it below that limit.
func dataOf(verbs *executor.Verbs) string {
	if verbs == nil {
		return ""
	}
	data, err := json.Marshal(Data{RDMA: verbs.Devices, RDMAUnknown: telemetry.Shorten(verbs.Unknown)})
	if err != nil || len(data) > resourceapi.AllocatedDeviceStatusDataMaxLength {
		return ""
	}
	return string(data)
}
