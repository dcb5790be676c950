package nodepage

import (
	"fmt"
	"strconv"
	"strings"
)

// mostNames is the maximum number of names in a label.
const mostNames = 4

// ranges abbreviates names: consecutive names that differ only in a trailing number become "first … last".
func ranges(names []string) string {
	var parts []string
	for i := 0; i < len(names); {
		end := i + 1
		for end < len(names) && follows(names[end-1], names[end]) {
			end++
		}
		switch end - i {
		case 1:
			parts = append(parts, names[i])
		case 2:
			parts = append(parts, names[i], names[i+1])
		default:
			parts = append(parts, fmt.Sprintf("%s … %s", names[i], names[end-1]))
		}
		i = end
	}
	if len(parts) > mostNames {
		return fmt.Sprintf("%s and more: %d devices", strings.Join(parts[:mostNames], ", "), len(names))
	}
	return strings.Join(parts, ", ")
}

// follows reports whether the second name is the first name with the number incremented.
func follows(first, second string) bool {
	digits := len(first) - len(strings.TrimRight(first, "0123456789"))
	if digits == 0 || digits > 9 {
		return false
	}
	stem, number := first[:len(first)-digits], first[len(first)-digits:]
	n, err := strconv.Atoi(number)
	return err == nil && second == stem+strconv.Itoa(n+1)
}
