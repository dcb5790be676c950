package main

import (
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/deviceclasses"
)

func validateCommand(streams printer.Streams) *cobra.Command {
	var schemas, name, form string
	cmd := &cobra.Command{
		Use: "validate TOPOLOGY...", Aliases: []string{"lint"},
		Short: "Validate topologies",
		Long: `Use validate while you write a topology, or in CI. It needs no plugins, devices or root permissions.
"-" is stdin.

It prints every problem of the NetworkTopologies and AddressRanges in the files as FILE:LINE: PATH: REASON. It does
the same checks as the controller: unknown fields, names, order and references of steps, configuration, templates, and
the CEL expressions of root steps. CNIPluginSchemas in the same file apply to its topologies. For a valid topology it
prints the DeviceClasses that a claim must request. -o json prints the same data for CI, one entry per object.

Exit status: 0 the topologies and ranges are valid, 2 there is a problem.`,
		Example: `  netdra chain validate deploy/samples/topologies.yaml
  netdra chain validate --schemas my-plugins.yaml topologies/*.yaml
  netdra chain validate topologies/*.yaml -o json | jq '.[] | select(.valid | not)'
  kubectl get ntopo mine -o yaml | netdra chain validate -`,
		Args: countArguments(1, math.MaxInt, "TOPOLOGY", "topology.yaml"),
		RunE: func(_ *cobra.Command, files []string) error {
			known, err := manifest.LoadSchemas(schemas, streams.In)
			if err != nil {
				return err
			}
			results := []validation{}
			for _, file := range files {
				results = append(results, validateFile(streams, file, name, known)...)
			}
			err = printer.Show(streams.Out, form, results, func(out *printer.Printer) {
				for i := range results {
					results[i].print(out)
				}
			})
			if err == nil && slices.ContainsFunc(results, func(v validation) bool { return !v.Valid }) {
				err = exit.Status(exit.Refused)
			}
			return err
		},
	}
	nameFlag(cmd, &name)
	schemasFlag(cmd, &schemas)
	formFlag(cmd, &form)
	return cmd
}

// validation is the result for one object, or for a file without a readable object.
type validation struct {
	// Location is the location of the object as FILE:LINE, or the file.
	Location string `json:"location"`
	Kind     string `json:"kind,omitempty"`
	Name     string `json:"name,omitempty"`
	Valid    bool   `json:"valid"`
	// DeviceClasses are the classes that a claim must request.
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// Problems have their own locations, in the form FILE:LINE: PATH: REASON.
	Problems []string `json:"problems,omitempty"`
	Remarks  []string `json:"remarks,omitempty"`
}

func (v *validation) print(out *printer.Printer) {
	for _, problem := range v.Problems {
		out.Bad("%s", problem)
	}
	switch {
	case !v.Valid:
	case v.Kind == manifest.KindRange:
		out.Good("%s: range %s is valid; use it in addressRange of a step", v.Location, v.Name)
	default:
		out.Good("%s: topology %s is valid; request deviceClassName %s in a claim", v.Location, v.Name,
			strings.Join(v.DeviceClasses, " and "))
	}
	for _, remark := range v.Remarks {
		out.Warn("%s: %s", v.Location, remark)
	}
}

// validateFile returns a result for each topology and range in a file. A file with neither is an error. A name selects
// topologies and skips ranges; an unknown name is an error.
func validateFile(streams printer.Streams, file, name string, schemas cnichain.Schemas) []validation {
	documents, err := manifest.Read(file, streams.In)
	if err == nil && (name != "" || !slices.ContainsFunc(documents, isValidated)) {
		_, err = manifest.ChooseTopology(file, documents, name)
	}
	if err != nil {
		return []validation{{Location: file, Problems: []string{err.Error()}}}
	}
	var results []validation
	var ranges []string
	for i := range documents {
		switch documents[i].Kind {
		case manifest.KindRange:
			ranges = append(ranges, documents[i].Name)
		case manifest.KindSchema:
			schema, err := manifest.ReadSchema(&documents[i])
			if err != nil {
				return []validation{{Location: documents[i].Location(), Problems: []string{err.Error()}}}
			}
			schemas = schemas.With(*schema)
		}
	}
	for i := range documents {
		found := &documents[i]
		switch {
		case found.Kind == manifest.KindRange && name == "":
			_, problems := manifest.ReadRange(found)
			results = append(results, validation{Location: found.Location(), Kind: found.Kind, Name: found.Name,
				Valid: len(problems) == 0, Problems: problems})
		case found.Kind == manifest.KindTopology && (name == "" || found.Name == name):
			results = append(results, validateDocument(found, schemas, ranges))
		}
	}
	return results
}

// validateDocument validates a topology, given the ranges in the same file.
func validateDocument(found *manifest.Document, schemas cnichain.Schemas, ranges []string) validation {
	topology, problems := manifest.ReadTopology(found, schemas)
	result := validation{Location: found.Location(), Kind: found.Kind, Name: found.Name, Valid: len(problems) == 0,
		Problems: problems}
	if result.Valid {
		result.DeviceClasses = manifest.ClassNames(topology)
		result.Remarks = append(cnichain.Remarks(topology, schemas), deviceclasses.Remarks(topology)...)
		result.Remarks = append(result.Remarks, cnichain.MisspeltRanges(topology, ranges)...)
	}
	return result
}

func isValidated(document manifest.Document) bool {
	return document.Kind == manifest.KindTopology || document.Kind == manifest.KindRange
}
