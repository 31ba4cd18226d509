"""From files and object code to something that runs: the linker, the image, the table."""
