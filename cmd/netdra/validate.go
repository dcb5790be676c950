package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/manifest"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cnichain"
)

func validateCommand(streams printer.Streams) *cobra.Command {
	var schemas, name string
	cmd := &cobra.Command{
		Use: "validate TOPOLOGY...", Aliases: []string{"lint"},
		Short: "Validate topologies",
		Long: `Use validate while you write a topology, or in CI. It needs no plugins, no devices and no root. "-" is
stdin.

It prints every problem of the NetworkTopologies in the files as FILE:LINE: PATH: REASON. It finds what the controller
would find: unknown fields, names, order and references of steps, configuration, templates, and the CEL expressions of
root steps. For a valid topology it prints the DeviceClasses that a claim must ask for.

Exit status: 0 the topologies are valid, 2 there is a problem.`,
		Example: `  netdra chain validate deploy/samples/topologies.yaml
  netdra chain validate --schemas my-plugins.yaml topologies/*.yaml
  kubectl get ntopo mine -o yaml | netdra chain validate -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			known, err := manifest.LoadSchemas(schemas, streams.In)
			if err != nil {
				return err
			}
			bad := 0
			for _, file := range files {
				bad += validateFile(streams, printer.New(streams.Out), file, name, known)
			}
			if bad > 0 {
				return &exit.Error{Code: exit.Refused, Err: exit.ErrPrinted}
			}
			return nil
		},
	}
	nameFlag(cmd, &name)
	schemasFlag(cmd, &schemas)
	return cmd
}

// validateFile returns how many problems there are.
func validateFile(streams printer.Streams, out *printer.Printer, file, name string, schemas cnichain.Schemas) int {
	documents, err := manifest.Read(file, streams.In)
	if err == nil && (name != "" || countTopologies(documents) == 0) {
		_, err = manifest.ChooseTopology(file, documents, name)
	}
	if err != nil {
		out.Bad("%v", err)
		return 1
	}
	bad := 0
	for i := range documents {
		found := &documents[i]
		if found.Kind != manifest.KindTopology || name != "" && found.Name != name {
			continue
		}
		topology, problems := manifest.ReadTopology(found, schemas)
		for _, problem := range problems {
			out.Bad("%s", problem)
		}
		bad += len(problems)
		if len(problems) == 0 {
			out.Good("%s: topology %s is fine; a claim asks for deviceClassName %s", found.Location(), topology.Name,
				strings.Join(manifest.ClassNames(topology), " and "))
			for _, remark := range cnichain.Remarks(topology, schemas) {
				out.Warn("%s: %s", found.Location(), remark)
			}
		}
	}
	return bad
}

func countTopologies(documents []manifest.Document) int {
	count := 0
	for i := range documents {
		if documents[i].Kind == manifest.KindTopology {
			count++
		}
	}
	return count
}
