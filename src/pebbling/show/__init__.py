"""Plans and reports as text and pictures; read by the command line and by nothing else."""

from .pebbles import pebbles
