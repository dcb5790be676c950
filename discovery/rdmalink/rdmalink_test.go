package rdmalink

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/vishvananda/netlink/nl"
)

// message is what the kernel answers, built of attributes in the order of nldev.c.
func message(attributes ...*nl.RtAttr) []byte {
	var data []byte
	for _, attribute := range attributes {
		data = append(data, attribute.Serialize()...)
		for len(data)%4 != 0 {
			data = append(data, 0)
		}
	}
	return data
}

func TestParseDevice(t *testing.T) {
	flags := make([]byte, 8)
	binary.NativeEndian.PutUint64(flags, 1<<20)
	whole := message(
		nl.NewRtAttr(1, nl.Uint32Attr(7)), nl.NewRtAttr(2, nl.ZeroTerminated("mlx5_0")),
		nl.NewRtAttr(3, nl.Uint32Attr(2)), nl.NewRtAttr(4, flags), nl.NewRtAttr(67, nl.ZeroTerminated("roce")))
	device, err := parseDevice(whole)
	if want := (Device{Index: 7, Name: "mlx5_0", Ports: 2, Protocol: "roce"}); err != nil || device.Index != want.Index ||
		device.Name != want.Name || device.Ports != want.Ports || device.Protocol != want.Protocol {
		t.Errorf("the device is %+v, %v, want %+v", device, err, want)
	}
	for name, data := range map[string][]byte{
		"no name":      message(nl.NewRtAttr(1, nl.Uint32Attr(7))),
		"no index":     message(nl.NewRtAttr(2, nl.ZeroTerminated("mlx5_0"))),
		"short index":  message(nl.NewRtAttr(1, []byte{1}), nl.NewRtAttr(2, nl.ZeroTerminated("mlx5_0"))),
		"cut":          whole[:10],
		"wrong length": {255, 255, 1, 0, 0, 0, 0, 0},
	} {
		if device, err := parseDevice(data); err == nil {
			t.Errorf("%s: the device is %+v", name, device)
		}
	}
	for end := range whole { // whatever the kernel sends, nothing panics
		_, _ = parseDevice(whole[:end])
		_, _ = parsePorts([][]byte{whole[:end]})
	}
}

func TestParsePorts(t *testing.T) {
	port := func(index uint32) []byte {
		return message(nl.NewRtAttr(1, nl.Uint32Attr(0)), nl.NewRtAttr(3, nl.Uint32Attr(1)),
			nl.NewRtAttr(50, nl.Uint32Attr(index)))
	}
	elsewhere := message(nl.NewRtAttr(1, nl.Uint32Attr(0)), nl.NewRtAttr(3, nl.Uint32Attr(3)))
	links, err := parsePorts([][]byte{port(9), port(4), port(9), elsewhere, port(0)})
	if err != nil || !slices.Equal(links, []int{4, 9}) {
		t.Errorf("the links are %v, %v", links, err)
	}
}
