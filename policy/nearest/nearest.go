// Package nearest finds the word that a user probably meant, so that error messages can suggest a correction.
//
// Invariant: it has no vocabulary of its own.
package nearest

import "strings"

// Index returns the index of the known word that the user probably meant: the most similar word that differs in at most
// two characters and in fewer than half of its characters, ignoring case. Short words, such as rack and mac, may be
// similar by chance. If several words are equally similar, Index returns the first one. It returns -1 if no word is
// similar enough.
func Index(word string, known []string) int {
	best, least := -1, min(2, (len(word)-1)/2)+1
	for i, candidate := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d < least {
			best, least = i, d
		}
	}
	return best
}

// distance returns the number of edits that turn one word into the other: inserting, deleting or replacing a character,
// or swapping two adjacent characters (optimal string alignment).
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
