package picture

import (
	"slices"
	"strings"
)

// noStep is the value of an empty lane.
const noStep = -1

// lanes draws one step per row, like "git log --graph" draws commits. The lane of a step continues until the last step
// that depends on it is drawn.
type lanes struct {
	// steps are the steps whose lanes continue, by lane.
	steps []int
	// pending counts the dependent steps of each step that are not drawn yet.
	pending map[int]int
	// last is the lane of the row above. A step directly below it would look like a dependent step.
	last int
}

// lines returns the drawing before the name of each step, all with the same width.
func (d Topology) lines() []string {
	l := lanes{pending: map[int]int{}, last: noStep}
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

// draw returns the row of a step and updates the lanes for the next one.
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
		continues := lane < len(above) && above[lane] != noStep
		switch {
		case lane == nodeLane:
			row = append(row, '○')
		case joins(lane):
			row = append(row, junction(first < lane, lane < final, l.pending[above[lane]] > 0))
		case continues:
			row = append(row, '│')
		default:
			row = append(row, filler(first < lane && lane < final))
		}
	}
	l.end(step, nodeLane)
	return row
}

// laneFor returns the lane of a step: the lane of its first parent without further dependent steps, or a free lane to
// the right of all parents.
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
	for lane == l.last || lane < len(l.steps) && l.steps[lane] != noStep {
		lane++
	}
	return lane
}

// end ends the lanes of steps that have no further dependent steps, and starts the lane for the step that was drawn.
func (l *lanes) end(step, nodeLane int) {
	for len(l.steps) <= nodeLane {
		l.steps = append(l.steps, noStep)
	}
	l.steps[nodeLane] = step
	for lane, holder := range l.steps {
		if l.pending[holder] == 0 {
			l.steps[lane] = noStep
		}
	}
	for len(l.steps) > 0 && l.steps[len(l.steps)-1] == noStep {
		l.steps = l.steps[:len(l.steps)-1]
	}
	l.last = nodeLane
}

// filler returns the character between lanes and in empty lanes: a horizontal line if one crosses, otherwise a space.
func filler(across bool) rune {
	if across {
		return '─'
	}
	return ' '
}

// junction returns the character where a lane from above meets lines to the left, right or below.
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
