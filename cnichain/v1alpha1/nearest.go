package v1alpha1

import "strings"

// Nearest returns the known word that somebody probably meant: one that differs in case only, else in up to two
// characters, but in fewer than half of them; "" if there is none.
func Nearest(word string, known []string) string {
	best, least := "", min(2, (len(word)-1)/2)+1
	for _, candidate := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete, replace or swap with the next to make one word of the other
// (optimal string alignment).
func distance(a, b string) int {
	previous, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], previous[j-1]+1)
			}
		}
		previous, row = row, next
	}
	return row[len(b)]
}
