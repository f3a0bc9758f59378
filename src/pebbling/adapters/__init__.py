"""Schedules of pebbling in the tools of others; each adapter imports its tool when it is imported itself."""
