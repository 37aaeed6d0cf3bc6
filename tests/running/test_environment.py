"""The facts on a commit in a run's environment."""

import subprocess

import pytest

from ptxdiff.running.environment import revision, web_address


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://example.org/team/kernels.git", "https://example.org/team/kernels"),
        ("https://user:secret@example.org/team/kernels", "https://example.org/team/kernels"),
        ("https://token@example.org:8443/team/kernels.git/", "https://example.org:8443/team/kernels"),
        ("git@example.org:team/kernels.git", "https://example.org/team/kernels"),
        ("ssh://git@example.org:2222/group/team/kernels.git", "https://example.org/group/team/kernels"),
        ("/srv/git/team/kernels.git", ""),
        ("../kernels", ""),
        ("C:/git/kernels", ""),
        ("file:///srv/git/team/kernels", ""),
        ("https://example.org:port/team/kernels", ""),
        ("https://example.org/team/../secret/x y", ""),
        ("javascript:alert(1)//a/b", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_repository_has_no_user_and_no_password(remote, address):
    assert web_address(remote) == address


def test_a_commit_has_its_subject_and_a_folder_outside_of_git_has_nothing(tmp_path):
    assert revision(tmp_path) == {}
    for words in (
        ("init", "-q"),
        ("remote", "add", "origin", "https://me:secret@example.org/team/kernels.git"),
        ("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "Add a case\n\nMore."),
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    found = revision(tmp_path)
    assert (found["subject"], found["web"], found["dirty"]) == ("Add a case", "https://example.org/team/kernels", False)
    assert "secret" not in str(found)
