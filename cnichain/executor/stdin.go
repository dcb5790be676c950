package executor

import (
	"encoding/json"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// stdin completes a rendered configuration with what the driver sets. The runtime's keys replace what a configuration
// has under their names (CNI specification, section 3 "Deriving request configuration from plugin configuration").
func stdin(attachment *Attachment, record *StepRecord, config json.RawMessage) (json.RawMessage, error) {
	fields, err := cnichain.CompleteConfig(&record.Step, config)
	if err != nil {
		return nil, err
	}
	step := &record.Step
	for key, value := range map[string]string{"cniVersion": step.CNIVersion, "name": step.Network, "type": step.Type} {
		if fields[key], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	if record.Step.PrevResult {
		fields["prevResult"], err = resultAs(mergeResults(parentResults(attachment, record)...), record.Step.CNIVersion)
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

func parentResults(attachment *Attachment, record *StepRecord) []*types100.Result {
	results := make([]*types100.Result, 0, len(record.Step.DependsOn))
	for _, parent := range record.Step.DependsOn {
		results = append(results, attachment.Steps[parent].Merged)
	}
	return results
}
