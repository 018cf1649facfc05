"""What ``lcstore demo`` trains, in one process that is killed and one that goes on."""
