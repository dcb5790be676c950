// Package browser opens the pages of "netdra report" in Chromium and checks, through its debugging protocol, how
// readers experience them: on a desktop and on a phone, light and dark, with a keyboard only, and through a screen
// reader.
//
// The rule of this package: pages are the golden files of the packages that write them, so no cluster is needed, and
// they are not modified. The script that measures (audit.js) changes nothing in them.
package browser
