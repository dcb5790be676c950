package status

import (
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// Data is the field data of a device's entry in the status of a claim, for values without a field in networkData. It is
// an API: names do not change, and fields may be added.
type Data struct {
	// RDMA contains the RDMA devices of the containers, as applications address them.
	RDMA []cnichain.VerbsDevice `json:"rdma,omitempty"`
	// RDMAUnknown is the reason why RDMA lacks GIDs; empty if there is a GID for each address.
	RDMAUnknown string `json:"rdmaUnknown,omitempty"`
}

// dataOf returns the JSON of Data. It is empty for a device without RDMA, and for data that the API server would
// reject: the rest of the status is more important. cnichain.MaxGIDs keeps the data below that limit.
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
