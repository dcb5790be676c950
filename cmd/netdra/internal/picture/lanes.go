package picture

import (
	"slices"
	"strings"
)

// nobody is what an empty lane holds.
const nobody = -1

// lanes draws steps below each other, one a row, as "git log --graph" draws commits: a step has a lane, which goes on
// below it until the last step that stands on it is drawn.
type lanes struct {
	// steps are those whose lanes go on, by lane.
	steps []int
	// pending are the steps that stand on each and are not drawn yet.
	pending map[int]int
	// last is the lane of the row above: what stands right below it looks as if it stood on it.
	last int
}

// lines returns what is drawn before the name of each step; all are of one width.
func (d Topology) lines() []string {
	l := lanes{pending: map[int]int{}, last: nobody}
	for _, b := range d.boxes {
		for _, parent := range b.after {
			l.pending[parent]++
		}
	}
	rows, width := make([][]rune, len(d.boxes)), 0
	for i, b := range d.boxes {
		rows[i] = l.draw(i, b.after)
		width = max(width, len(rows[i]))
	}
	texts := make([]string, len(rows))
	for i, row := range rows {
		texts[i] = string(row) + strings.Repeat(" ", width-len(row))
	}
	return texts
}

// draw returns the row of a step, and moves on to the next.
func (l *lanes) draw(step int, parents []int) []rune {
	above := slices.Clone(l.steps)
	for _, parent := range parents {
		l.pending[parent]--
	}
	nodeLane := l.laneFor(parents)
	joins := func(lane int) bool { return lane < len(above) && slices.Contains(parents, above[lane]) }
	first, final := nodeLane, nodeLane
	for lane := range above {
		if joins(lane) {
			first, final = min(first, lane), max(final, lane)
		}
	}
	var row []rune
	for lane := range max(len(above), nodeLane+1) {
		if lane > 0 {
			row = append(row, filler(first < lane && lane <= final))
		}
		goesOn := lane < len(above) && above[lane] != nobody
		switch {
		case lane == nodeLane:
			row = append(row, '○')
		case joins(lane):
			row = append(row, junction(first < lane, lane < final, l.pending[above[lane]] > 0))
		case goesOn:
			row = append(row, '│')
		default:
			row = append(row, filler(first < lane && lane < final))
		}
	}
	l.end(step, nodeLane)
	return row
}

// laneFor returns the lane of a step: that of the first of its parents on which no more steps stand, or a free one to
// the right of all of them.
func (l *lanes) laneFor(parents []int) int {
	lane := 0
	for i, step := range l.steps {
		if !slices.Contains(parents, step) {
			continue
		}
		if l.pending[step] == 0 {
			return i
		}
		lane = i + 1
	}
	for lane == l.last || lane < len(l.steps) && l.steps[lane] != nobody {
		lane++
	}
	return lane
}

// end ends the lanes of steps on which no more steps stand, and begins that of the step that was drawn.
func (l *lanes) end(step, nodeLane int) {
	for len(l.steps) <= nodeLane {
		l.steps = append(l.steps, nobody)
	}
	l.steps[nodeLane] = step
	for lane, holder := range l.steps {
		if l.pending[holder] == 0 {
			l.steps[lane] = nobody
		}
	}
	for len(l.steps) > 0 && l.steps[len(l.steps)-1] == nobody {
		l.steps = l.steps[:len(l.steps)-1]
	}
	l.last = nodeLane
}

// filler is what stands between and in lanes without a step: a line if it leads across.
func filler(across bool) rune {
	if across {
		return '─'
	}
	return ' '
}

// junction is where a lane that comes from above meets lines to the left and right, and goes on below or ends.
func junction(left, right, below bool) rune {
	switch {
	case left && right && below:
		return '┼'
	case left && right:
		return '┴'
	case left && below:
		return '┤'
	case left:
		return '┘'
	case below:
		return '├'
	}
	return '└'
}
