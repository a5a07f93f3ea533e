"""Seeds: drawing their scenarios, running and checking them, and shortening or replaying a failing one."""
