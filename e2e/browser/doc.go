// Package browser opens the pages of "netdra report" in Chromium and checks, through its debugging protocol, that they
// work for readers: on a desktop and on a phone, in light and dark mode, with only a keyboard, and with a screen
// reader.
//
// The rule of this package: it opens the golden files of the packages that generate the pages, so no cluster is needed.
// Nothing modifies the pages, not even the script that measures them (audit.js).
package browser
