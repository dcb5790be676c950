package chainrun

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/view"
)

// PrintView prints the content of a namespace.
func PrintView(p *printer.Printer, v view.View) {
	rows := [][]string{{"INTERFACE", "KIND", "MAC", "MTU", "STATE", "ADDRESSES"}}
	for i := range v.Interfaces {
		link := &v.Interfaces[i]
		rows = append(rows, []string{
			link.Name, link.Kind, cmp.Or(link.MAC,
				"-"), fmt.Sprint(link.MTU), link.State(), cmp.Or(strings.Join(link.Addresses, ", "), "-"),
		})
	}
	p.Printf("")
	p.Table(rows)
	p.Printf("")
	if len(v.Routes) == 0 {
		p.Printf("ROUTES  none")
		return
	}
	p.Printf("ROUTES")
	for _, route := range v.Routes {
		p.Printf("%s", route)
	}
}
