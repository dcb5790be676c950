package executor

import (
	"encoding/json"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

// stdin adds the driver's fields to a rendered configuration. They replace any keys with the same names in the
// configuration (CNI specification, section 3 "Deriving request configuration from plugin configuration").
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

// laterStdin returns the stdin for CHECK and DEL: the stdin of the step's ADD with the step's own result as prevResult
// (CNI specification, section 3 "Deletions"). If the result cannot be added, laterStdin returns the stdin of ADD, so
// that DEL is always called.
func laterStdin(record *StepRecord) json.RawMessage {
	if record.Result == nil || !record.Step.Speaks("0.4.0") {
		return record.Stdin
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(record.Stdin, &fields) != nil {
		return record.Stdin
	}
	fields["prevResult"] = record.Result
	out, err := json.Marshal(fields)
	if err != nil {
		return record.Stdin
	}
	return out
}

func parentResults(attachment *Attachment, record *StepRecord) []*types100.Result {
	results := make([]*types100.Result, 0, len(record.Step.DependsOn))
	for _, parent := range record.Step.DependsOn {
		results = append(results, attachment.Steps[parent].Merged)
	}
	return results
}
