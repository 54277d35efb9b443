"""In good order. Its tool ``crash`` ends it, ``hold`` never answers, and ``look`` says what the process sees."""

from tests.launch.servers.hand import Server, main

if __name__ == "__main__":
    main(Server)
