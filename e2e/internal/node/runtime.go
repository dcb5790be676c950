package node

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// AskRuntime requests the version of the container runtime at a socket, as the kubelet does first. It returns an error
// if the runtime does not respond: containerd starts listening slightly before it can respond. AskRuntime ignores the
// content of the response. It sends an empty message, which is also the encoding of a version request without a
// version, so it needs neither the runtime's API nor the Kubernetes libraries.
func AskRuntime(ctx context.Context, socket string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	err = connection.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
	return errors.Join(err, connection.Close())
}
