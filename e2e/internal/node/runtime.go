package node

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// AskRuntime queries the version of the container runtime at a socket, like the first request of the kubelet, and
// returns an error without an answer: containerd listens a moment before it can answer. It ignores the content of the
// answer. Its request is empty, which has the same encoding as one without a version: so it needs neither the API of
// the runtime nor Kubernetes' libraries.
func AskRuntime(ctx context.Context, socket string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	err = connection.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
	return errors.Join(err, connection.Close())
}
