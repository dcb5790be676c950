package node

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// AskRuntime queries the version of the container runtime at a socket, as the kubelet does in its first request. It
// returns an error if the runtime does not respond: containerd listens slightly before it can respond. AskRuntime
// ignores the content of the response. The request is an empty message, which has the same encoding as a request
// without a version, so AskRuntime needs neither the API of the runtime nor the libraries of Kubernetes.
func AskRuntime(ctx context.Context, socket string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	err = connection.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
	return errors.Join(err, connection.Close())
}
