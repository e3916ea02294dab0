"""What ends in a file, a page or a terminal; nothing below imports it."""
