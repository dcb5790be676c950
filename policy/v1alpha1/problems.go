package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

type problems struct{ list field.ErrorList }

func (p *problems) add(errs ...*field.Error) { p.list = append(p.list, errs...) }

func (p *problems) invalid(path *field.Path, value any, format string, args ...any) {
	p.add(field.Invalid(path, value, fmt.Sprintf(format, args...)))
}

// duplicate and tooLong replace the library's messages with messages that state a reason and a remedy.
func (p *problems) duplicate(path *field.Path, value any, remedy string) {
	err := field.Duplicate(path, value)
	err.Detail = remedy
	p.add(err)
}

func (p *problems) tooLong(path *field.Path, text string, limit int, remedy string) {
	if len(text) > limit {
		err := field.TooLong(path, "", limit)
		err.Detail = fmt.Sprintf("has %d bytes, the limit is %d: %s", len(text), limit, remedy)
		p.add(err)
	}
}

func (p *problems) tooMany(path *field.Path, count, limit int) {
	if count > limit {
		p.add(field.TooMany(path, count, limit))
	}
}

// expression checks that a CEL expression exists and is not too long; all other checks require a compiler. example is
// an expression for the same purpose.
func (p *problems) expression(path *field.Path, text, example, remedy string) {
	if strings.TrimSpace(text) == "" {
		p.add(field.Required(path, "an expression over one device, for example "+example))
	}
	p.tooLong(path, text, maxCELLength, remedy)
}
