package clusterwide

import (
	"cmp"
	"context"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/doctor"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/exit"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/remote"
)

// nodeFinding is a finding with its node.
type nodeFinding struct {
	Node string `json:"node"`
	doctor.Finding
}

func findings(ctx context.Context, cluster *remote.Cluster, node string) ([]doctor.Finding, error) {
	var found []doctor.Finding
	err := cluster.Decode(ctx, node, &found, "doctor", "--output=json")
	return found, err
}

// askCluster queries the API server with the privileges of the caller. The driver's pods, in which doctor runs, have no
// kubeconfig.
func askCluster(ctx context.Context, cluster *remote.Cluster) *doctor.Cluster {
	if cluster.Config == nil {
		return nil
	}
	return doctor.QueryCluster(ctx, cluster.Config)
}

// Doctor prints the findings of one node. The error has the exit status of "netdra doctor".
func Doctor(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, node string,
	options *doctor.Options) error {
	found, err := findings(ctx, cluster, node)
	if err != nil {
		return err
	}
	found = doctor.WithCluster(found, askCluster(ctx, cluster))
	err = printer.Show(streams.Out, options.Form, found, func(out *printer.Printer) {
		doctor.PrintFindings(out, found, options.All)
	})
	if err == nil && doctor.Count(found, doctor.Fail) > 0 {
		err = exit.Reported()
	}
	return err
}

// DoctorAll prints the findings for all nodes, with a heading for each node. The error has the worst exit status of
// "netdra doctor". An unreachable node (2) takes precedence over a node with a fault (1), since it may have worse
// faults.
func DoctorAll(ctx context.Context, cluster *remote.Cluster, streams printer.Streams, options *doctor.Options) error {
	answers, err := remote.Each(ctx, cluster, func(ctx context.Context, node string) ([]doctor.Finding, error) {
		return findings(ctx, cluster, node)
	})
	if err != nil {
		return err
	}
	all, wrong, asked := []nodeFinding{}, false, askCluster(ctx, cluster)
	for i := range answers {
		answers[i].Answer = doctor.WithCluster(answers[i].Answer, asked)
		for _, finding := range answers[i].Answer {
			all = append(all, nodeFinding{answers[i].Node, finding})
			wrong = wrong || finding.Level == doctor.Fail
		}
	}
	err = printer.Show(streams.Out, options.Form, all, func(out *printer.Printer) {
		for i := range answers {
			if i > 0 {
				out.Printf("")
			}
			out.Printf("%s", out.Colour(printer.Dim, "node "+answers[i].Node))
			if answers[i].Err != nil {
				out.Bad("node unreachable")
			} else {
				doctor.PrintFindings(out, answers[i].Answer, options.All)
			}
		}
	})
	if wrong {
		return cmp.Or(err, failures(streams, answers), exit.Reported())
	}
	return cmp.Or(err, failures(streams, answers))
}
