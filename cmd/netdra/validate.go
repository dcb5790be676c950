package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cnichain"
)

func validateCommand(to console) *cobra.Command {
	var schemas, name string
	cmd := &cobra.Command{
		Use: "validate TOPOLOGY...", Aliases: []string{"lint"},
		Short: "Say what is wrong with topologies, or what a claim must ask for",
		Long: `validate reports every problem of the NetworkTopologies in the files, as FILE:LINE: PATH: REASON. It finds what the
controller would find: unknown fields, names, order and references of steps, configuration, templates, and the CEL
expressions of root steps. It needs no plugins, no devices and no root. "-" is stdin.

Of a topology without problems it prints the DeviceClasses that a claim must ask for. The exit status is 2 if there is
any problem.`,
		Example: `  netdra chain validate deploy/samples/topologies.yaml
  netdra chain validate --schemas my-plugins.yaml topologies/*.yaml
  kubectl get ntopo mine -o yaml | netdra chain validate -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, files []string) error {
			known, err := loadSchemas(schemas, to.in)
			if err != nil {
				return err
			}
			bad := 0
			for _, file := range files {
				bad += validateFile(to, newPrinter(to.out), file, name, known)
			}
			if bad > 0 {
				return &exitError{code: exitRefused, err: errShown}
			}
			return nil
		},
	}
	nameFlag(cmd, &name)
	schemasFlag(cmd, &schemas)
	return cmd
}

// validateFile returns how many problems there are.
func validateFile(to console, out *printer, file, name string, schemas cnichain.Schemas) int {
	documents, err := readDocuments(file, to.in)
	if err == nil && (name != "" || countTopologies(documents) == 0) {
		_, err = choose(file, documents, name)
	}
	if err != nil {
		out.bad("%v", err)
		return 1
	}
	bad := 0
	for i := range documents {
		found := &documents[i]
		if found.kind != kindTopology || name != "" && found.name != name {
			continue
		}
		topology, problems := readTopology(found, schemas)
		for _, problem := range problems {
			out.bad("%s", problem)
		}
		bad += len(problems)
		if len(problems) == 0 {
			out.good("%s: topology %s is fine; a claim asks for deviceClassName %s", found.where(), topology.Name, strings.Join(classes(topology), " and "))
			for _, remark := range cnichain.Remarks(topology, schemas) {
				out.warn("%s: %s", found.where(), remark)
			}
		}
	}
	return bad
}

func countTopologies(documents []document) int {
	count := 0
	for i := range documents {
		if documents[i].kind == kindTopology {
			count++
		}
	}
	return count
}

// usage is an error of which nothing was run.
func usage(format string, arguments ...any) error {
	return &exitError{code: exitRefused, err: fmt.Errorf(format, arguments...)}
}

// left is an error of something that could not be undone.
func left(errs ...error) error {
	return &exitError{code: exitLeft, err: errors.Join(errs...)}
}
