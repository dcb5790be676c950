package discovery

import (
	"context"
	"fmt"
)

// Busy says what the node itself does with a link at this moment, in a form such as "it is a port of the bridge br0"; empty if
// nothing. A link that is busy must not be taken away. A link that is not there is not busy.
func Busy(ctx context.Context, from Sources, name IfName) (string, error) {
	links, err := attempt(ctx, func() ([]link, error) {
		links, _, err := readLinks(from.Links, from.NodeAddresses)
		return links, err
	})
	if err != nil {
		return "", err
	}
	for i := range links {
		l := &links[i]
		switch {
		case l.Parent == name:
			return fmt.Sprintf("the %s %s stands on it", l.Kind, l.Interface), nil
		case l.Interface != name:
		case l.Master != "":
			return fmt.Sprintf("it is a port of the %s %s", l.MasterKind, l.Master), nil
		case l.DefaultRoute:
			return "it carries a default route or an address of the node, or what does stands on it", nil
		}
	}
	return "", nil
}
