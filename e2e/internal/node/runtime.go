package node

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// AskRuntime asks the container runtime at a socket for its version, which is what kubelet asks first, and ends if
// there is no answer: containerd listens a moment before it can give one. The answer's content is of no interest. Its
// request is empty, which has the same encoding as one without a version: so the API of the runtime is not needed, and
// with it none of Kubernetes' libraries.
func AskRuntime(ctx context.Context, socket string) error {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	err = connection.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{})
	return errors.Join(err, connection.Close())
}
