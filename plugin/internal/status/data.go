package status

import (
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/executor"
	"github.com/dra-networking/dra-network-driver/plugin/internal/telemetry"
)

// Data is the content of the data field in a device's entry in the claim status. It contains values for which
// networkData has no field. It is an API: fields may be added, but their names never change.
type Data struct {
	// RDMA lists the RDMA devices in the containers and how applications address them.
	RDMA []cnichain.VerbsDevice `json:"rdma,omitempty"`
	// RDMAUnknown is the reason why GIDs are missing from RDMA. It is empty if there is a GID for each address.
	RDMAUnknown string `json:"rdmaUnknown,omitempty"`
}

// dataOf returns Data as JSON. It returns "" for a device without RDMA, and also if the API server would reject the
// data because of its size, since the rest of the status is more important. cnichain.MaxGIDs keeps the data below the
// size limit.
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
