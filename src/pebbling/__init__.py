from .chain import *
