// Package doctor says what is wrong or risky on a node, and what to do about it.
//
// The rule of this package: [Gather] reads everything into one value, and a check is a pure function of that value.
package doctor
