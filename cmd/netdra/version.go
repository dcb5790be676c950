package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/cmd/internal/version"
	"github.com/dra-networking/dra-network-driver/plugin/nodeapi/nodestate"
)

// versions are those that a report of a fault is about.
type versions struct {
	Netdra version.Info `json:"netdra"`
	// Driver is empty if it does not answer, or is one that does not say it.
	Driver  string `json:"driver,omitempty"`
	Kubelet string `json:"kubelet,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
}

func versionsOf(state *nodestate.State) versions {
	v := versions{Netdra: version.Get()}
	if state != nil {
		v.Driver, v.Kubelet, v.Runtime, v.Kernel = state.Version, state.Versions.Kubelet, state.Versions.Runtime, state.Versions.Kernel
	}
	return v
}

// String is one line.
func (v versions) String() string {
	parts := []string{"netdra " + v.Netdra.String()}
	for _, one := range []struct{ name, version string }{{"driver", v.Driver}, {"kubelet", v.Kubelet}, {"", v.Runtime}, {"kernel", v.Kernel}} {
		if one.version != "" {
			parts = append(parts, strings.TrimSpace(one.name+" "+strings.Replace(one.version, "://", " ", 1)))
		}
	}
	return strings.Join(parts, ", ")
}

func versionCommand(to console) *cobra.Command {
	var form, socket string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of netdra and of what runs on this node",
		Long: `version prints which build netdra is, and, if the driver of this node answers, its version and those of kubelet, container
runtime and kernel. Name them when you report a fault.`,
		Example: `  netdra version
  sudo netdra version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkForm(form); err != nil {
				return err
			}
			all := versionsOf(askState(cmd.Context(), socket))
			if form != formText {
				return printResult(to.out, form, all)
			}
			newPrinter(to.out).say("%s", all)
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", socketHere(), "where the driver of this node answers")
	formFlag(cmd, &form)
	return cmd
}

// askState is nil if the driver does not answer.
func askState(ctx context.Context, socket string) *nodestate.State {
	state := &nodestate.State{}
	if err := newDriverClient(socket).read(ctx, "/state", state); err != nil {
		return nil
	}
	return state
}
